"""Why a label was predicted: the contribution of each input to its score."""

from manyhot.explain.contributions import Attribution, LinearFactors, gradient_contributions, linear_contributions
from manyhot.explain.explanation import Contribution, Explanation, LabelExplanation, LabelWords

__all__ = [
    "Attribution",
    "Contribution",
    "Explanation",
    "LabelExplanation",
    "LabelWords",
    "LinearFactors",
    "gradient_contributions",
    "linear_contributions",
]
