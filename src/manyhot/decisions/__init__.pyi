"""Public names of ``manyhot.decisions`` and where they live."""

from manyhot.decisions.calibrate import Calibration as Calibration
from manyhot.decisions.calibrate import fit_calibration as fit_calibration
from manyhot.decisions.hierarchy import Hierarchy as Hierarchy
from manyhot.decisions.links import probabilities as probabilities
from manyhot.decisions.row_f1 import RowF1 as RowF1
from manyhot.decisions.rule import DecisionRule as DecisionRule
from manyhot.decisions.rule import decide as decide
from manyhot.decisions.rule import decide_sparse as decide_sparse
from manyhot.decisions.set_values import SetValues as SetValues
from manyhot.decisions.span_decoding import CharacterSpan as CharacterSpan
from manyhot.decisions.span_decoding import Span as Span
from manyhot.decisions.span_decoding import character_spans as character_spans
from manyhot.decisions.span_decoding import decode_spans as decode_spans
from manyhot.decisions.span_windows import merge_windows as merge_windows
from manyhot.decisions.span_windows import token_windows as token_windows
from manyhot.decisions.tune import TunedRule as TunedRule
from manyhot.decisions.tune import tune_rule as tune_rule
