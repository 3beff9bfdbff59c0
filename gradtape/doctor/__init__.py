"""What `gradtape doctor` looks at: packages, the driver, CUDA's libraries, the cache, and whether anything runs. Floor:
top."""

from gradtape.doctor.finding import Finding
from gradtape.doctor.report import examine

__all__ = ["Finding", "examine"]
