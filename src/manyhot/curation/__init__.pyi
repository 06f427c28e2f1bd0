"""Public names of ``manyhot.curation`` and where they live."""

from manyhot.curation.cross_fit import cross_fitted_logits as cross_fitted_logits
from manyhot.curation.reasons import Reasons as Reasons
from manyhot.curation.sampling import ChosenRow as ChosenRow
from manyhot.curation.sampling import choose_rows as choose_rows
from manyhot.curation.suspects import Suspect as Suspect
from manyhot.curation.suspects import corrected_labels as corrected_labels
from manyhot.curation.suspects import find_suspects as find_suspects
from manyhot.curation.suspects import wrong_probabilities as wrong_probabilities
