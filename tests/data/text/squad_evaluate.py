#!/usr/bin/env python3
"""Exact match and F1 of SQuAD predictions: an independent implementation of the official rules of version 1.1, the
reference for data/text/squad_metrics.
usage: squad_evaluate.py DATASET PREDICTIONS      both are JSON; the dataset may be gzip-compressed"""
import collections
import gzip
import json
import re
import string
import sys


def normalise(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact(prediction, truth):
    return normalise(prediction) == normalise(truth)


def f1(prediction, truth):
    prediction, truth = normalise(prediction).split(), normalise(truth).split()
    same = sum((collections.Counter(prediction) & collections.Counter(truth)).values())
    if same == 0:
        return 0
    precision, recall = 1.0 * same / len(prediction), 1.0 * same / len(truth)
    return (2 * precision * recall) / (precision + recall)


def load(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def evaluate(articles, predictions):
    exact_sum = f1_sum = total = 0
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                total += 1
                if question["id"] not in predictions:
                    continue
                truths = [answer["text"] for answer in question["answers"]]
                prediction = predictions[question["id"]]
                exact_sum += max(exact(prediction, truth) for truth in truths)
                f1_sum += max(f1(prediction, truth) for truth in truths)
    return {"exact_match": 100.0 * exact_sum / total, "f1": 100.0 * f1_sum / total}


if __name__ == "__main__":
    print(json.dumps(evaluate(load(sys.argv[1])["data"], load(sys.argv[2]))))
