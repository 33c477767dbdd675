"""``python -m chaos.simulator``."""

from chaos.simulator.command import simulate

if __name__ == "__main__":
    simulate()
