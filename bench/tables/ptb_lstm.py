#!/usr/bin/env python3
"""Penn Treebank, LSTM with two layers of 200, one epoch; learning rates are chosen by the validation text after 400 steps. 1.6 core-hours."""
from methods import headline
from series import Table

Table(
    name="ptb_lstm",
    title="Penn Treebank, LSTM with two layers of 200, one epoch, 4 nodes with 5 streams of 35 words each.",
    program="train_lm",
    flags="--model lstm_small --epochs 1 --nodes 4 --batch 5 --set model.input_dropout=0.1 --set model.hidden_dropout=0.1 --set model.output_dropout=0.1",
    methods=headline("adamw", beta=0.95, adamw=2e-3, one_bit_adam=2e-3, zero_one_adam=1e-3, birder=3e-4, softsignsgd=3e-4, sgdm=2, birder_beta_half=8e-3),
    metric="test_perplexity",
    better=min,
    unit="test perplexity",
    data="ptb.train.txt, ptb.valid.txt and ptb.test.txt",
    validation=("--max-steps", "400"),
    validation_metric="perplexity",
).main()
