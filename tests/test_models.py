"""Networks side by side, their parameters in one tensor, and what a policy says."""

import copy
import math

import pytest
import torch
from torch import distributions, nn

from course_lib.models import (
    ActorCritic,
    Categorical,
    DiagonalGaussian,
    FlatParameters,
    StackedLinear,
    mlp,
)

GAUSSIAN, DISCRETE = {"action_size": 3}, {"num_actions": 3}
KINDS = [
    DISCRETE,
    GAUSSIAN,
    DISCRETE | {"shared": True},
    DISCRETE | {"orthogonal": False},
]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def plain_network(net, seed):
    """The same network out of torch's own layers, with weights of network `seed`."""
    layers = []
    for layer in net:
        if isinstance(layer, nn.Tanh):
            layers.append(nn.Tanh())
            continue
        one = nn.Linear(*layer.weight.shape[1:])
        with torch.no_grad():
            one.weight.copy_(layer.weight[seed].T)
            one.bias.copy_(layer.bias[seed, 0])
        layers.append(one)
    return nn.Sequential(*layers)


def test_networks_side_by_side_are_so_many_ordinary_ones():
    net = mlp([generator(seed) for seed in (3, 1, 4)], [5, 8, 6, 2], output_gain=1.0)
    with torch.no_grad():
        for one in net.parameters():
            one.add_(0.1 * torch.randn(one.shape, generator=generator(9)))
    x = torch.randn(3, 7, 5, generator=generator(8))
    together = net(x)
    together.square().sum().backward()
    for seed in range(3):
        alone = plain_network(net, seed)
        y = alone(x[seed])
        torch.testing.assert_close(together[seed], y)
        y.square().sum().backward()
        torch.testing.assert_close(net[2].weight.grad[seed].T, alone[2].weight.grad)
        torch.testing.assert_close(net[0].bias.grad[seed, 0], alone[0].bias.grad)


@pytest.mark.parametrize("options", KINDS)
def test_an_agent_is_a_function_of_its_own_seed_not_of_who_stands_beside_it(options):
    together = ActorCritic(4, seeds=(7, 8, 9), **options)
    alone = ActorCritic(4, seeds=(8,), **options)
    for all_of_them, one in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(all_of_them[1:2], one, rtol=0, atol=0)
    weights = together.policy_net[-1].weight
    assert (weights[0] - weights[1]).abs().max() > 1e-4


def test_initial_weights_are_orthogonal_with_the_gains_of_the_field():
    agent = ActorCritic(4, num_actions=2, seeds=(0, 1), hidden=(64, 32))
    for net, last in ((agent.policy_net, 0.01), (agent.value_net, 1.0)):
        for layer, gain in zip(
            net[::2], (math.sqrt(2), math.sqrt(2), last), strict=True
        ):
            for weight, bias in zip(layer.weight, layer.bias, strict=True):
                sizes = torch.linalg.svdvals(weight)
                torch.testing.assert_close(sizes, torch.full_like(sizes, gain))
                assert not bias.any()


def test_without_orthogonal_weights_come_pytorchs_own():
    layer = StackedLinear([generator(1)], 16, 200, None)
    for numbers in (layer.weight, layer.bias):
        assert numbers.abs().max() <= 0.25  # 1 / sqrt(16)
        # A uniform number in [-a, a] has the standard deviation a / sqrt(3).
        assert float(numbers.detach().std()) == pytest.approx(
            0.25 / math.sqrt(3), rel=0.2
        )


def test_a_policy_starts_out_near_uniform_whatever_it_sees():
    agent = ActorCritic(4, num_actions=3, seeds=(0, 1))
    seen = 10 * torch.randn(2, 100, 4, generator=generator())
    chances = agent.policy(seen).logits.softmax(-1)
    assert (chances - 1 / 3).abs().max() < 0.01
    loud = ActorCritic(4, num_actions=3, seeds=(0, 1), policy_gain=1.0)
    assert (loud.policy(seen).logits.softmax(-1) - 1 / 3).abs().max() > 0.2


def test_a_shared_trunk_feeds_both_heads_and_separate_networks_share_nothing():
    seen = torch.randn(1, 5, 4, generator=generator())
    for shared in (True, False):
        agent = ActorCritic(4, num_actions=2, shared=shared, policy_gain=1.0)
        policy, values = agent.policy_and_values(seen)
        torch.testing.assert_close(policy.logits, agent.policy(seen).logits)
        torch.testing.assert_close(values, agent.values(seen))
        values.sum().backward()
        into_trunk = [one.grad for one in agent.trunk.parameters()]
        assert shared == bool(into_trunk and into_trunk[0].abs().sum() > 0)
        assert all(one.grad is None for one in agent.policy_net.parameters())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give num_actions or action_size"),
        ({"num_actions": 2, "action_size": 2}, "give num_actions or action_size"),
        ({"num_actions": 2, "seeds": ()}, "at least one seed"),
        ({"num_actions": 0}, "all positive, got"),
        ({"num_actions": 2, "hidden": (0,)}, "all positive, got"),
    ],
)
def test_an_agent_that_cannot_be_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        ActorCritic(4, **options)


def flat_agent():
    agent = ActorCritic(4, action_size=2, seeds=(0, 1, 2), hidden=(5,))
    return agent, FlatParameters(agent)


def loss_of(agent):
    seen = torch.ones(3, 6, 4)
    policy, values = agent.policy_and_values(seen)
    actions = torch.linspace(-1, 1, 36).view(3, 6, 2)
    return (policy.log_probs(actions) + values.square()).sum()


def test_flat_parameters_leave_the_module_as_it_was_and_share_its_memory():
    plain = ActorCritic(4, action_size=2, seeds=(0, 1, 2), hidden=(5,))
    agent, flat = flat_agent()
    assert flat.values.shape == (3, sum(p[0].numel() for p in plain.parameters()))
    for one, other in zip(plain.parameters(), agent.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    with torch.no_grad():
        flat.values[1] += 1.0
    assert torch.equal(agent.log_std[1], plain.log_std[1] + 1)
    assert torch.equal(agent.log_std[2], plain.log_std[2])


def test_flat_gradients_are_the_modules_and_add_up_until_zeroed():
    plain = ActorCritic(4, action_size=2, seeds=(0, 1, 2), hidden=(5,))
    loss_of(plain).backward()
    agent, flat = flat_agent()
    right = torch.cat([p.grad.reshape(3, -1) for p in plain.parameters()], 1)
    for times in (1, 2):
        loss_of(agent).backward()
        torch.testing.assert_close(flat.gradients, times * right)
    flat.zero_gradients()
    assert not any(p.grad.any() for p in agent.parameters())
    loss_of(agent).backward()  # still into the same memory
    torch.testing.assert_close(flat.gradients, right)


def test_an_optimizers_step_on_the_flat_tensor_is_its_step_on_every_parameter():
    plain = ActorCritic(4, action_size=2, seeds=(0, 1, 2), hidden=(5,))
    agent, flat = flat_agent()
    one = torch.optim.Adam(plain.parameters(), lr=0.01)
    other = torch.optim.Adam([flat.values], lr=0.01)
    for _ in range(3):
        one.zero_grad()
        loss_of(plain).backward()
        one.step()
        flat.zero_gradients()
        loss_of(agent).backward()
        other.step()
    for a, b in zip(plain.parameters(), agent.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_each_network_is_clipped_by_its_own_norm():
    _, flat = flat_agent()
    rows = torch.randn(flat.values.shape, generator=generator())
    rows *= torch.tensor([[0.1], [10.0], [0.0]]) / rows.norm(dim=1, keepdim=True)
    flat.gradients.copy_(rows)
    torch.testing.assert_close(flat.clip_gradients(0.5), torch.tensor([0.1, 10.0, 0.0]))
    kept = torch.stack([rows[0], rows[1] / 20, rows[2]])
    torch.testing.assert_close(flat.gradients, kept)


def test_a_saved_state_comes_back_into_the_flat_tensor():
    agent, flat = flat_agent()
    saved = copy.deepcopy(agent.state_dict())
    before = flat.values.detach().clone()
    with torch.no_grad():
        flat.values.zero_()
    agent.load_state_dict(saved)
    torch.testing.assert_close(flat.values.detach(), before, rtol=0, atol=0)
    with torch.no_grad():
        flat.values.fill_(2.0)
    assert all((one == 2).all() for one in agent.parameters())


@pytest.mark.parametrize("module", [nn.Tanh(), nn.Linear(2, 3)])
def test_flat_parameters_refuse_a_module_without_one_first_axis(module):
    if isinstance(module, nn.Linear):  # weight [3, 2] and a bias of another S
        module.bias = nn.Parameter(torch.zeros(4))
    with pytest.raises(ValueError, match="one S, got first axes"):
        FlatParameters(module)


def two_policies(kind):
    """Ours and torch's, twice over, for 2 agents and 5 states."""
    first, second = (
        torch.randn(2, 5, 3, generator=generator(seed)).double() for seed in (0, 1)
    )
    if kind == "categorical":
        return [
            (Categorical(one), distributions.Categorical(logits=one))
            for one in (first, second)
        ]
    found = []
    for mean, spread in ((first, 0.3), (second, -0.2)):
        log_std = torch.tensor([[[spread, 0.0, -spread]], [[0.1, 0.2, 0.3]]]).double()
        theirs = distributions.Normal(mean, log_std.exp().expand_as(mean))
        ours = DiagonalGaussian(mean, log_std)
        found.append((ours, distributions.Independent(theirs, 1)))
    return found


@pytest.mark.parametrize("options", [DISCRETE, GAUSSIAN])
def test_what_a_policy_said_stays_said_when_its_parameters_move(options):
    agent = ActorCritic(4, **options)
    seen = torch.ones(1, 5, 4)
    with torch.no_grad():
        old = agent.policy(seen)
        for one in agent.policy_net.parameters():
            one.add_(torch.randn(one.shape, generator=generator()))
        if agent.log_std is not None:
            agent.log_std.add_(0.3)
        new = agent.policy(seen)
    apart = old.kl(new)
    assert (apart > 0.01).all()
    if agent.log_std is not None:  # also by what the deviations have changed
        same_mean = DiagonalGaussian(old.mean, new.log_std)
        # Three numbers with KL = .3 + (exp(-.6) - 1) / 2 each.
        right = 3 * (0.3 + math.expm1(-0.6) / 2)
        torch.testing.assert_close(old.kl(same_mean), torch.full((1, 5), right))


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
def test_log_probs_entropies_and_kl_are_torchs(kind):
    (ours, theirs), (our_other, their_other) = two_policies(kind)
    actions = theirs.sample()
    torch.testing.assert_close(ours.log_probs(actions), theirs.log_prob(actions))
    torch.testing.assert_close(ours.entropies(), theirs.entropy())
    divergence = distributions.kl_divergence(theirs, their_other)
    torch.testing.assert_close(ours.kl(our_other), divergence)
    assert ours.kl(ours).abs().max() < 1e-12


def test_actions_are_drawn_as_often_as_the_policy_says():
    logits = torch.tensor([2.0, -torch.inf, 0.0, 1.0]).log_softmax(-1)
    count = 40_000
    noise = torch.rand(1, count, generator=generator(5))
    drawn = Categorical(logits.expand(1, count, 4)).sample(noise)
    shares = torch.bincount(drawn[0], minlength=4) / count
    chances = logits.exp()
    error = (chances * (1 - chances) / count).sqrt()
    assert ((shares - chances).abs() <= 4 * error).all()
    assert shares[1] == 0


def test_noise_next_to_one_draws_the_last_action_and_none_beyond_it():
    """Probabilities in float32 may add up to less than 1."""
    logits = torch.randn(1, 500, 101, generator=generator())
    assert (logits.softmax(-1).cumsum(-1)[..., -1] < 1).any()
    noise = torch.full((1, 500), 1 - 2**-24)
    assert (Categorical(logits).sample(noise) <= 100).all()
    assert Categorical(logits[..., :2]).sample(noise).eq(1).all()
    assert Categorical(logits).sample(0 * noise).eq(0).all()


def test_gaussian_actions_have_the_mean_and_the_deviation():
    count = 40_000
    mean = torch.tensor([1.0, -2.0]).expand(1, count, 2)
    policy = DiagonalGaussian(mean, torch.tensor([0.5, 2.0]).log().view(1, 1, 2))
    drawn = policy.sample(torch.randn(1, count, 2, generator=generator(6)))[0]
    error = torch.tensor([0.5, 2.0]) / count**0.5
    assert ((drawn.mean(0) - mean[0, 0]).abs() < 4 * error).all()
    # The standard error of a deviation is sigma / sqrt(2 n).
    assert ((drawn.std(0) - error * count**0.5).abs() < 4 * error / 2**0.5).all()


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
def test_no_action_is_likelier_than_the_mode(kind):
    (ours, theirs), _ = two_policies(kind)
    best = ours.log_probs(ours.mode())
    for _ in range(50):
        assert (ours.log_probs(theirs.sample()) <= best + 1e-12).all()
