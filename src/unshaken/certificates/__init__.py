"""Certificates: accuracy that no attack of a stated kind can lower, by random smoothing and an exact binomial bound.

What is proved holds for the smoothed classifier, the majority over random changes of a text, and not for the model
inside it. A certified accuracy is a lower bound that no search can break; an accuracy under attack is an upper bound
that a better search may lower. The two are never mixed.
"""

from __future__ import annotations

from unshaken.certificates.base import ALL_WORDS, Certificate, Certified, CertifiedText, lower_bound
from unshaken.certificates.deletion import Deletion
from unshaken.certificates.masking import RanMask
from unshaken.certificates.substitution import Safer
from unshaken.names import from_spec

CERTIFICATES: dict[str, type[Certificate]] = {kind.name: kind for kind in (Safer, RanMask, Deletion)}


def find_certificate(given: Certificate | str) -> Certificate:
    """A certificate from what a user gave: itself, or its specification, such as `ranmask:keep=0.2`."""
    return from_spec("certificate", given, CERTIFICATES) if isinstance(given, str) else given


__all__ = [
    "ALL_WORDS",
    "CERTIFICATES",
    "Certificate",
    "Certified",
    "CertifiedText",
    "Deletion",
    "RanMask",
    "Safer",
    "find_certificate",
    "lower_bound",
]
