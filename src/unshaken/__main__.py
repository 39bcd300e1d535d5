"""`python -m unshaken`, which is what accelerate and torchrun start."""

from unshaken.cli import main

if __name__ == "__main__":
    main()
