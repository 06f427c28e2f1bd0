"""Tiny random models and texts for the tests of integrations: nothing is downloaded."""

import torch

WORDS = ("apple", "bread", "cheese", "dough", "egg", "fish", "grill", "honey", "ice", "jam", "knife", "lemon")
NAMES = ("baking", "dairy", "sweet", "meat")
# A text has a label where it holds one of the label's words.
MEANING = {"baking": ("bread", "dough"), "dairy": ("cheese", "ice"), "sweet": ("honey", "jam"), "meat": ("fish", "grill")}


def make_texts(rows, *, seed=0, length=6):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(len(WORDS), (rows, length), generator=generator).tolist()
    return [" ".join(WORDS[number] for number in row) for row in numbers]


def label_sets(texts):
    return [[name for name in NAMES if set(MEANING[name]) & set(text.split())] for text in texts]


def make_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=32,
        model_input_names=["input_ids", "attention_mask"],
    )


def bert_settings(**settings):
    from transformers import BertConfig

    return BertConfig(
        vocab_size=16,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **settings,
    )


def make_classifier(seed=0, names=NAMES, **settings):
    from transformers import BertForSequenceClassification

    torch.manual_seed(seed)
    return BertForSequenceClassification(
        bert_settings(id2label=dict(enumerate(names)), label2id={name: n for n, name in enumerate(names)}, **settings)
    )


def tokenized(texts, labels, tokenizer=None):
    tokenizer = tokenizer or make_tokenizer()
    return [{**tokenizer(text, truncation=True), "labels": own} for text, own in zip(texts, labels, strict=True)]
