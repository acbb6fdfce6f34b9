"""Starting engines, finding the ones specdeck started, and ending them."""
