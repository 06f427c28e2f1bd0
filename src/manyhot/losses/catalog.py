"""The losses by name. An entry (``LossInfo``) holds everything the rest of the library needs to know about a loss."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from manyhot._checks import check_choice
from manyhot.losses.bce import BCELoss, bce_loss
from manyhot.losses.decoupled import DecoupledSoftmaxLoss, decoupled_softmax_loss
from manyhot.losses.dice import DiceLoss, dice_loss
from manyhot.losses.focal import AsymmetricLoss, FocalLoss, asymmetric_loss, focal_loss
from manyhot.losses.hinge import SquaredHingeLoss, squared_hinge_loss
from manyhot.losses.info import LossInfo, options_of
from manyhot.losses.lsep import LSEPLoss, lsep_loss
from manyhot.losses.pairwise import PairwiseLoss, pairwise_loss
from manyhot.losses.softmax import SoftmaxLoss, softmax_loss
from manyhot.losses.two_way import TwoWayLoss, two_way_loss
from manyhot.losses.zlpr import TLPRLoss, ZLPRLoss, tlpr_loss, zlpr_loss

BINARY, RANKING, OVERLAP, SINGLE = "binary relevance", "label ranking", "overlap", "one label per row"

_ENTRIES = (
    LossInfo(
        name="zlpr",
        title="ZLPR",
        family="zlpr",
        function=zlpr_loss,
        module=ZLPRLoss,
        summary="all positives above zero, all negatives below; balances itself",
        decision="zero",
        link="hard",
        soft_link="soft",
        lazy=True,
        fused_rdrop=True,
        learned_threshold=True,
        spans=True,
    ),
    LossInfo(
        name="tlpr",
        title="TLPR",
        family="zlpr",
        function=tlpr_loss,
        module=TLPRLoss,
        summary="ZLPR with a threshold that is given or learned",
        decision="threshold",
        link="hard",
        soft_link="soft",
        settings=MappingProxyType({"threshold": 0.0}),
        lazy=True,
        learned_threshold=True,
    ),
    LossInfo(
        name="pairwise",
        title="pairwise",
        family=RANKING,
        function=pairwise_loss,
        module=PairwiseLoss,
        summary="every positive above every negative, for a known number of labels; circle loss with scale and margin",
        decision="top-k",
        link=None,
        soft_link=None,
        options=options_of(
            pairwise_loss,
            scale="factor of the scores, > 0 (gamma of circle loss)",
            margin="lead that a positive should have over a negative",
        ),
        lazy=True,
    ),
    LossInfo(
        name="softmax",
        title="softmax",
        family=SINGLE,
        function=softmax_loss,
        module=SoftmaxLoss,
        summary="cross-entropy for exactly one label per row",
        decision="argmax",
        link="softmax",
        soft_link="softmax",
        one_label=True,
    ),
    LossInfo(
        name="bce",
        title="BCE",
        family=BINARY,
        function=bce_loss,
        module=BCELoss,
        summary="binary cross-entropy, every label by itself",
        decision="zero",
        link="hard",
        soft_link="hard",
        spans=True,
    ),
    LossInfo(
        name="focal",
        title="focal",
        family=BINARY,
        function=focal_loss,
        module=FocalLoss,
        summary="cross-entropy in which easy entries count less",
        decision="zero",
        link="hard",
        soft_link="hard",
        options=options_of(
            focal_loss,
            gamma="how fast easy entries fade, >= 0",
            alpha="weight of the positives in [0, 1]; the negatives have 1 - alpha",
        ),
        spans=True,
        knob=("gamma", (2.0, 1.0)),
    ),
    LossInfo(
        name="asymmetric",
        title="asymmetric",
        family=BINARY,
        function=asymmetric_loss,
        module=AsymmetricLoss,
        summary="focal with a stronger power on negatives; very easy negatives are left out",
        decision="zero",
        link="hard",
        soft_link="hard",
        options=options_of(
            asymmetric_loss,
            gamma_pos="focusing power of the positives, >= 0",
            gamma_neg="focusing power of the negatives, >= 0",
            margin="negatives with a probability below it cost nothing",
        ),
        knob=("gamma_neg", (4.0, 2.0)),
    ),
    LossInfo(
        name="squared_hinge",
        title="squared hinge",
        family=BINARY,
        function=squared_hinge_loss,
        module=SquaredHingeLoss,
        summary="a margin for every label by itself, as linear SVMs have it",
        decision="zero",
        link=None,
        soft_link=None,
        options=options_of(squared_hinge_loss, margin="by how much an entry must be right to cost nothing, > 0"),
        row_step=0.125,
        constant_score=lambda share: 2 * share - 1,
    ),
    LossInfo(
        name="dice1",
        title="dice 1",
        family=OVERLAP,
        function=dice_loss,
        module=DiceLoss,
        summary="overlap of the label sets",
        decision="zero",
        link="hard",
        soft_link="hard",
        options=options_of(dice_loss, epsilon="added to numerator and denominator, > 0"),
        settings=MappingProxyType({"squared": False}),
    ),
    LossInfo(
        name="dice2",
        title="dice 2",
        family=OVERLAP,
        function=dice_loss,
        module=DiceLoss,
        summary="overlap of the label sets, squares in the denominator",
        decision="zero",
        link="hard",
        soft_link="hard",
        options=options_of(dice_loss, epsilon="added to numerator and denominator, > 0"),
        settings=MappingProxyType({"squared": True}),
    ),
    LossInfo(
        name="lsep",
        title="LSEP",
        family=RANKING,
        function=lsep_loss,
        module=LSEPLoss,
        summary="pairwise over at most 1,000 sampled pairs per row",
        decision="top-k",
        link=None,
        soft_link=None,
        options=options_of(lsep_loss, max_pairs="most pairs sampled per row; none: all pairs"),
        refuses=MappingProxyType({"smoothing": "lsep samples pairs of a positive and a negative; pairwise takes smoothing"}),
    ),
    LossInfo(
        name="decoupled",
        title="decoupled softmax",
        family=RANKING,
        function=decoupled_softmax_loss,
        module=DecoupledSoftmaxLoss,
        summary="a softmax for each positive over that positive and all negatives",
        decision="top-k",
        link=None,
        soft_link=None,
        options=options_of(decoupled_softmax_loss, scale="factor of the scores, > 0: one over the temperature"),
        lazy=True,
    ),
    LossInfo(
        name="two_way",
        title="two-way",
        family=RANKING,
        function=two_way_loss,
        module=TwoWayLoss,
        summary="pairwise along labels and along the batch, with temperatures",
        decision="tuned",
        link=None,
        soft_link=None,
        options=options_of(
            two_way_loss,
            pos_temperature="temperature of the positives, > 0",
            neg_temperature="temperature of the negatives, > 0",
            batch_weight="weight of the part along the batch; 0 leaves it out",
        ),
        row_separable=False,
        knob=("pos_temperature", (4.0, 1.0)),
    ),
)

_BY_NAME = {entry.name: entry for entry in _ENTRIES}
LOSSES: Mapping[str, LossInfo] = MappingProxyType(_BY_NAME)


def get_loss(name: str) -> LossInfo:
    """The loss called ``name``.

    Example:
        >>> get_loss("zlpr").decision
        'zero'
    """
    check_choice("get_loss", "name", name, tuple(LOSSES))
    return LOSSES[name]
