"""The live screen: follows every engine and shows one."""
