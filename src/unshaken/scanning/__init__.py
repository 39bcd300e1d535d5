"""Scan a deployed classifier: ten families of edits, fixed ones first, then searches; misses and false alarms."""

from unshaken.scanning.families import Family, families
from unshaken.scanning.results import Broken, FamilyResult, ScanResult
from unshaken.scanning.scan import Detector, scan

__all__ = ["Broken", "Detector", "Family", "FamilyResult", "ScanResult", "families", "scan"]
