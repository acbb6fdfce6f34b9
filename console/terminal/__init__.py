"""What is written to the terminal: Textual's driver, sending only the cells that differ."""
