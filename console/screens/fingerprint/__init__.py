"""The fingerprint screen: names, facts as a tree, and what differs from a pin."""
