"""What the console knows of engines and asks of them; no terminal in it."""
