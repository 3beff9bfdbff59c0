"""The check of a machine with an NVIDIA GPU: one command, which needs no network and takes less than six minutes.

    make gpu-check                  # on the machine with the GPU
    make gpu-check DRY_RUN=1        # the same on the emulated device of the tests, with small sizes
    make gpu-carry                  # before that, on a machine with a network: what is carried to the one with the GPU

Sections (`sections/`) run in processes of their own, one after the other. Each passes, fails, or is not run and says
why.
"""
