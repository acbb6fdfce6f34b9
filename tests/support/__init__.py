"""What tests and some benchmarks stand on: fake and real engines, terminals, the command."""
