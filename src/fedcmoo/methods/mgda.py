"""MGDA, the multi-gradient descent algorithm, as on centralized data (appendix A)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedcmoo.client import Client
from fedcmoo.contributions import Arrays, Contribution
from fedcmoo.gram.base import gram_matrix
from fedcmoo.messages import Field, Message
from fedcmoo.methods.base import Method, buffer_fields, public_buffers, reweigh, weighted_sum
from fedcmoo.rounds import Ask, Round, Server, Sizes
from fedcmoo.settings import Named, registered
from fedcmoo.weights import WEIGHTS, MinNorm, Rule, check_rule


@dataclass(frozen=True, kw_only=True)
class MGDA(Method):
    """x <- x - η Σ_k w_k ∇F_k(x), with the min-norm weights of the gradients over all clients' data.

    With batch_size = None the gradients are exact; with a batch size this is stochastic MGDA. Each round is one step of
    size server_lr with all clients, so the mean over clients is the gradient of F_k.

    Args:
        weights: the rule on the Gram matrix; the min-norm solution is MGDA.

    References:
        Désidéri. Multiple-gradient descent algorithm (MGDA) for multiobjective optimization. Comptes Rendus
        Mathématique, 2012.
    """

    title: ClassVar[str] = "centralised multi-gradient descent: one step a round over everyone's data"

    batch_size: int | None = None
    weights: Named[Rule] = registered(MinNorm(), WEIGHTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rule(self.weights)
        for name in ("client_lr", "local_steps", "optimizer"):
            if getattr(self, name) != getattr(Method, name):
                raise ValueError(
                    f"MGDA has no {name}, since clients send gradients and take no steps, but got "
                    f"{getattr(self, name)}; leave it out (the step's length is server_lr)"
                )

    def gradients(self, M: int) -> float:
        return M

    def contributions(self) -> Mapping[str, Contribution]:
        return {"gradients": AllGradients(self.batch_size)}

    def releases(self, round: int) -> Sequence[str]:
        raise ValueError("the method must ask the round's cohort, but MGDA asks all clients in every round")

    def round(self, server: Server) -> Round:
        server.cohort = server.everyone
        sums = (yield Ask({"gradients": Message()})).part("gradients")
        J = sums.objective_mean("J")  # ∇F(x) as rows: [M, d]
        reweigh(server, self.weights, gram_matrix(J[:, : server.sizes.d_shared]))
        self.descend(server, weighted_sum(J, server.w), sums)


@dataclass(frozen=True)
class AllGradients(Contribution):
    """The gradients of all objectives with respect to all parameters: [M, d]."""

    gradients: ClassVar[bool] = True

    batch_size: int | None

    update: ClassVar[str] = "J"

    def compute(self, client: Client, message: Message) -> Arrays:
        J = client.jacobian(self.batch_size)
        return {"J": J, **public_buffers(client)}

    def check(self, sizes: Sizes) -> None:
        if sizes.private:
            raise ValueError(
                f"clients must train their private parameters ({sizes.private}), but MGDA's send gradients and train "
                "nothing; take another method, such as FedCMOO()"
            )

    def fields(self, sizes: Sizes) -> Mapping[str, Field]:
        return {"J": Field((sizes.M, sizes.d), sizes.dtype), **buffer_fields(sizes)}
