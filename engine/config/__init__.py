"""From a YAML file to validated settings, with older spellings translated."""
