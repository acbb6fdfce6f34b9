"""Engine values to words: pure functions, no Textual."""
