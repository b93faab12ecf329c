"""What docs/BENCHMARKS.md says around its tables; `report` fills in the figures."""

HOW = """\
# Benchmarks

Written by `python course.py bench kernels`; not edited by hand. The same command makes
the figures anew, on your machine.

Times are microseconds of CPU time for one call, on one thread: {processor}, {system},
{cores} cores, load {load}, on {date}. All competitors take turns in one process;
{rounds} rounds ({slow} of what takes over a second), medians; a ratio is the median of
the ratios within a round. All of it took {seconds} s of CPU time. The C library was
made to keep freed memory of up to {kept} MB first, because fetching a result's pages
anew costs more than the arithmetic; what is larger pays for its pages in every call.
Versions: {versions}.
"""

GAE = """\
## GAE

`gae` on a CPU with `engine="auto"` (numba), episodes that terminate at a step with
probability .02, float32, [rows, steps]. Each peer is its package's own function and has
its inputs ready in its own layout and dtype. The plain torch loop is the recursion of
TRL, verl and OpenRLHF, which work on all rows one step at a time. The streaming bound
reads once what GAE reads and writes once what it writes, in a compiled loop without the
chain of sums.

{times}

The same as multiples of ours (above 1: slower than ours):

{ratios}

`engine="torch"`, which needs neither numba nor triton, beside the other pure tensor
code and Stable-Baselines3's NumPy loop, as multiples of its own time:

{torch}

What is left to the streaming bound: up to some thousand numbers, about six
microseconds to look at the arguments and make tensors of results, which the bound does
not do. From there on the chain of sums: a step has to wait for the one after it, and
four rows side by side hide most of that wait, not all. For arrays beyond the caches
the memory is the larger part of both.
"""

LOG_PROBS = """\
## Log-probabilities of tokens

`token_log_probs` in float32, [rows, tokens, vocabulary], forward alone and with the
gradient of the sum. `log_softmax` and `gather` is what most scripts write; it makes a
second tensor of the logits' size, and two more on the way back. A row of the batch at a
time with `logsumexp` is TRL's and verl's remedy. Ours takes as many positions as fit
into a core's cache, and on the way back makes the softmax anew instead of keeping it.
The logits of the two larger vocabularies take .4 and 1 GB.

{times}

The same as multiples of ours (above 1: slower than ours):

{ratios}

The most memory that was held for a call at one time, beyond its inputs, as a multiple
of the logits. On the way back the gradient itself is 1:

{memory}

For a handful of actions ours lays them along the first axis, where vector instructions
reach them; that copy is what it holds there.
"""

WHITENING = """\
## Whitening

`whiten` over all real entries of a batch, seven in ten, n - 1 in the variance. TRL's
form multiplies by the boolean mask, which has to become floats each time, and takes
three means. Ours selects by bits and subtracts in place. Microseconds, and multiples of
ours:

{times}
"""

GROUPS = """\
## Group advantages

{groups} groups, [groups, answers], the scores in any order with the number of their
group. The loop takes one group after the other, as the method is explained. Where each
row is a group there are no numbers to sort. Microseconds, and multiples of ours:

{times}
"""

LOSSES = """\
## Losses

Loss and gradient of a flat minibatch without a mask and of rows of tokens with one,
ratios and values on both sides of the clip. The plain form is CleanRL's few lines, with
TRL's mean of products where there is a mask. `clipped_policy_loss` of a small batch is
one compiled pass, diagnostics and all; above 8,192 steps, and in `clipped_value_loss`,
ours are operations too. What these take longer is spent on looking at the arguments and
for NaN, on masking by selection, and on the diagnostics that the plain form does not
have (`ratio_max`, a second clip fraction, `explained_variance`).
Microseconds, and multiples of ours:

{times}
"""

DEVICE = """\
## On a GPU

Written by `python course.py bench device`: {device}, {date}, {seconds} s in all,
versions {versions}. All kernels agree with their float64 results on the CPU: {agree}.
Microseconds by the device's own events; a copy moves as many bytes as the kernel has to
read and write.

{times}
"""
