"""The check on screens: one prompt through both arms side by side, and many prompts."""
