"""Does the speculative path still say what the target says, how sure is that, and why not?"""
