"""Public names of ``manyhot.scores`` and where they live."""

from manyhot.scores.linear import LinearScores as LinearScores
from manyhot.scores.rows import gather_rows as gather_rows
from manyhot.scores.spans import SpanScores as SpanScores
from manyhot.scores.top import TopScores as TopScores
