"""Values on the command line: numbers, quantities, times, spans of offsets, text."""
