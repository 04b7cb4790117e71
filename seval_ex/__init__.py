"""Explainable evaluation of summaries, statement by statement."""

__version__ = "0.1.0"

from seval_ex.ledger import Evidence, Label, Ledger, SEvalError, Statement, Status, Verdict
from seval_ex.likelihood import LanguageModel, LikelihoodVerifier  # also makes its engine known
from seval_ex.pipeline import SEvalEx

__all__ = [
    "Evidence",
    "Label",
    "LanguageModel",
    "Ledger",
    "LikelihoodVerifier",
    "SEvalError",
    "SEvalEx",
    "Statement",
    "Status",
    "Verdict",
    "__version__",
]
