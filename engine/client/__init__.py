"""What specdeck asks of an engine over HTTP."""
