"""How a console asks a running engine to change, and what the engine answers."""
