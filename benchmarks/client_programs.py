"""Programs of libraries that call torch.compile, with random weights and the widths of real models.

`PROGRAMS[name](device, tiny, options)` builds one and returns its step, a function without
arguments that returns a tensor. `options` are torch.compile's, which the program gives to the
library's own call of it; `tiny` is for a trial on a CPU. Nothing imports Diode here.
"""

from __future__ import annotations

import copy
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Step = Callable[[], torch.Tensor]
Options = dict[str, Any]
BFLOAT16 = torch.bfloat16


def _flux(device: str, tiny: bool) -> tuple[Any, Options]:
    """Flux's transformer with one block of each kind, and its inputs for an image of 1024²."""
    from diffusers import FluxTransformer2DModel

    size = {"attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 32,
            "pooled_projection_dim": 16, "axes_dims_rope": (4, 6, 6)} if tiny else {}  # fmt: skip
    image, text = (64, 16) if tiny else (4096, 512)
    with torch.device(device):
        net = FluxTransformer2DModel(
            num_layers=1, num_single_layers=1, guidance_embeds=True, **size
        )
        net = net.to(BFLOAT16).eval()
        inputs = {
            "hidden_states": torch.randn(1, image, 64, dtype=BFLOAT16),
            "encoder_hidden_states": torch.randn(
                1, text, net.config.joint_attention_dim, dtype=BFLOAT16
            ),
            "pooled_projections": torch.randn(1, net.config.pooled_projection_dim, dtype=BFLOAT16),
            "timestep": torch.tensor([0.5], dtype=BFLOAT16),
            "guidance": torch.tensor([3.5]),
            "img_ids": torch.zeros(image, 3),
            "txt_ids": torch.zeros(text, 3),
            "return_dict": False,
        }
    return net, inputs


def flux_blocks(device: str, tiny: bool, options: Options) -> Step:
    net, inputs = _flux(device, tiny)
    net.compile_repeated_blocks(fullgraph=True, options=options)
    return torch.no_grad()(lambda: net(**inputs)[0])


def flux_whole(device: str, tiny: bool, options: Options) -> Step:
    net, inputs = _flux(device, tiny)
    net.compile(options=options)
    return torch.no_grad()(lambda: net(**inputs)[0])


def _qwen(device: str, tiny: bool) -> Any:
    """Qwen3-8B with two layers."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    size = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16,
            "num_key_value_heads": 2, "vocab_size": 256}  # fmt: skip
    full = {"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
            "head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151936}  # fmt: skip
    config = Qwen3Config(num_hidden_layers=2, **(size if tiny else full))
    return _built(Qwen3ForCausalLM, config, device).eval()


def _built(model: Any, config: Any, device: str) -> Any:
    with torch.device(device):
        return model._from_config(config, dtype=BFLOAT16)


def _tokens(net: Any, *shape: int) -> torch.Tensor:
    return torch.randint(0, net.config.vocab_size, shape, device=net.device)


def decode(batch: int) -> Callable[[str, bool, Options], Step]:
    """A decode step with a static cache of 1024 places, half of them used."""

    def make(device: str, tiny: bool, options: Options) -> Step:
        from transformers import StaticCache

        net = _qwen(device, tiny)
        used = 16 if tiny else 512
        cache = StaticCache(config=net.config, max_cache_len=2 * used)
        with torch.no_grad():
            net(_tokens(net, batch, used), past_key_values=cache, logits_to_keep=1)
        token = _tokens(net, batch, 1)
        net.forward = torch.compile(net.forward, fullgraph=True, options=options)

        def step() -> torch.Tensor:
            for layer in cache.layers:
                layer.cumulative_length.fill_(used)
            logits: torch.Tensor = net(token, past_key_values=cache).logits
            return logits

        return torch.no_grad()(step)

    return make


def prefill(device: str, tiny: bool, options: Options) -> Step:
    net = _qwen(device, tiny)
    tokens = _tokens(net, 1, 32 if tiny else 2048)
    call = torch.compile(net, options=options)
    return torch.no_grad()(lambda: call(tokens, use_cache=False, logits_to_keep=1).logits)


def generate(device: str, tiny: bool, options: Options) -> Step:
    """32 new tokens for 4 prompts of 128, as transformers compiles its decoding."""
    from transformers import CompileConfig

    net = _qwen(device, tiny)
    tokens = _tokens(net, 4, 8 if tiny else 128)
    compiled = CompileConfig(mode=None, fullgraph=True, options=options or None)
    compiled._compile_all_devices = True
    new = 4 if tiny else 32

    def step() -> torch.Tensor:
        found: torch.Tensor = net.generate(
            tokens, attention_mask=torch.ones_like(tokens), do_sample=False, pad_token_id=0,
            eos_token_id=None, max_new_tokens=new, min_new_tokens=new,
            cache_implementation="static", compile_config=compiled,
        )  # fmt: skip
        return found

    return step


def _llama(device: str, tiny: bool, model: str = "LlamaModel") -> Any:
    """Llama-3.1-8B with two layers; without a head unless the model has one."""
    import transformers

    size = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 256}  # fmt: skip
    full = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
            "num_key_value_heads": 8, "vocab_size": 128256}  # fmt: skip
    config = transformers.LlamaConfig(num_hidden_layers=2, **(size if tiny else full))
    return _built(getattr(transformers, model), config, device)


def quantised(kind: str, **settings: Any) -> Callable[[str, bool, Options], Step]:
    """Llama's layers, quantised by torchao, on 2048 tokens."""

    def make(device: str, tiny: bool, options: Options) -> Step:
        from torchao import quantization

        net = _llama(device, tiny).eval()
        chosen = dict(settings)
        if kind.startswith("Float8"):
            chosen["granularity"] = quantization.PerTensor() if tiny else quantization.PerRow()
            if tiny:  # a CPU computes float8 as well
                quantization.quant_api._check_hardware_support = lambda *_: None
        quantization.quantize_(net, getattr(quantization, kind)(**chosen))
        tokens = _tokens(net, 1, 32 if tiny else 2048)
        call = torch.compile(net, options=options)
        return torch.no_grad()(lambda: call(tokens, use_cache=False).last_hidden_state)

    return make


def float8_training(device: str, tiny: bool, options: Options) -> Step:
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    net = _llama(device, tiny).train()
    config = Float8LinearConfig(emulate=tiny)
    convert_to_float8_training(net, config=config)
    tokens = _tokens(net, 1, 32 if tiny else 2048)
    return _training(net, lambda call: call(tokens, use_cache=False).last_hidden_state, options)


def lora(device: str, tiny: bool, options: Options) -> Step:
    """A step of training by PEFT, rank 16 on all linear layers, of 2 × 1024 tokens."""
    from peft import LoraConfig, get_peft_model

    net = _llama(device, tiny, "LlamaForCausalLM")
    config = LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    net = get_peft_model(net, config).to(BFLOAT16).train()
    tokens = _tokens(net, 2, 32 if tiny else 1024)
    return _training(net, lambda call: call(tokens, labels=tokens).loss, options)


def _training(
    net: torch.nn.Module, run: Callable[[Any], torch.Tensor], options: Options | None
) -> Step:
    """Forward, backward and AdamW. Without options the library has compiled the net already."""
    parameters = [p for p in net.parameters() if p.requires_grad]
    on_gpu = parameters[0].is_cuda
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, capturable=on_gpu)
    call = net if options is None else torch.compile(net, options=options)

    def step() -> torch.Tensor:
        loss = run(call).float().mean()
        for parameter, grad in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = grad
        optimizer.step()
        return loss.detach()

    return step


def llama_training(device: str, tiny: bool, options: Options) -> Step:
    """A step of torchtitan's Llama-3.1-8B with two layers, of 2048 tokens."""
    from torchtitan.config import job_config
    from torchtitan.models.llama3 import Transformer, llama3_args
    from torchtitan.models.llama3.infra.parallelize import apply_compile

    args = copy.copy(llama3_args["debugmodel" if tiny else "8B"])
    args.n_layers = 2
    args.vocab_size = 128256 if not tiny else 256
    with torch.device(device):
        net = Transformer(args)
    with torch.no_grad():
        net.init_weights(buffer_device=torch.device(device))
    net = net.to(BFLOAT16)
    for name, value in options.items():  # torchtitan gives none to torch.compile
        setattr(torch._inductor.config, name, value)
    apply_compile(net, job_config.Compile(enable=True))
    tokens = torch.randint(0, args.vocab_size, (1, 32 if tiny else 2048), device=device)
    return _training(net, lambda call: call(tokens), None)


def vision(device: str, tiny: bool, options: Options) -> Step:
    """timm's ViT-B/16 with two layers, 64 images."""
    import timm

    size = 32 if tiny else 224
    with torch.device(device):
        net = timm.create_model("vit_base_patch16_224", img_size=size, depth=2).to(BFLOAT16).eval()
        images = torch.randn(2 if tiny else 64, 3, size, size, dtype=BFLOAT16)
    call = torch.compile(net, options=options)
    return torch.no_grad()(lambda: call(images))


def sentences(device: str, tiny: bool, options: Options) -> Step:
    """A BERT of two layers in sentence-transformers, 32 sentences of 128 tokens."""
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, BertTokenizerFast

    size = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96} if tiny else {}
    with tempfile.TemporaryDirectory() as folder:
        BertModel(BertConfig(num_hidden_layers=2, **size)).save_pretrained(folder)
        words = Path(folder) / "vocab.txt"
        words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]))
        BertTokenizerFast(vocab_file=str(words)).save_pretrained(folder)
        bert = models.Transformer(folder)
    pooling = models.Pooling(bert.get_word_embedding_dimension())
    net = SentenceTransformer(modules=[bert, pooling], device=device).to(BFLOAT16).eval()
    net.compile(options=options)
    shape = (2, 16) if tiny else (32, 128)
    data = {
        "input_ids": torch.randint(0, 7, shape, device=device),
        "attention_mask": torch.ones(shape, dtype=torch.long, device=device),
    }
    return torch.no_grad()(lambda: net(dict(data))["sentence_embedding"])


def graph_attention(device: str, tiny: bool, options: Options) -> Step:
    """torch-geometric's GAT with two layers, 100,000 edges between 10,000 nodes."""
    from torch_geometric.nn import GAT

    nodes, edges = (50, 200) if tiny else (10_000, 100_000)
    with torch.device(device):
        net = GAT(500, 256, num_layers=2, out_channels=41, heads=4).eval()
        x, index = torch.randn(nodes, 500), torch.randint(0, nodes, (2, edges))
    call = torch.compile(net, options=options)
    return torch.no_grad()(lambda: call(x, index))


def deep_kernel(device: str, tiny: bool, options: Options) -> Step:
    """Training of a Gaussian process of gpytorch, whose kernel is computed from a network."""
    import gpytorch

    points = 64 if tiny else 2000
    with torch.device(device):
        x, y = torch.randn(points, 18), torch.randn(points)
        likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class DeepKernel(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(x, y, likelihood)
            sizes = (18, 1000, 500, 50, 2)
            layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
            parts = [part for layer in layers for part in (layer, torch.nn.ReLU())]
            self.network = torch.compile(torch.nn.Sequential(*parts[:-1]), options=options)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> Any:
            features = self.network(x)
            return gpytorch.distributions.MultivariateNormal(
                self.mean(features), self.kernel(features)
            )

    net = DeepKernel().to(device).train()
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, net)
    return _training(net, lambda call: -loss(call(x), y), None)


def decoder(device: str, tiny: bool, options: Options) -> Step:
    """A decoder of x-transformers with two layers, training on 4 × 1024 tokens."""
    from x_transformers import Decoder, TransformerWrapper

    size = {"dim": 64, "heads": 4} if tiny else {"dim": 1024, "heads": 16}
    length = 32 if tiny else 1024
    with torch.device(device):
        layers = Decoder(depth=2, rotary_pos_emb=True, attn_flash=True, ff_glu=True, **size)
        net = TransformerWrapper(num_tokens=32000, max_seq_len=length, attn_layers=layers)
        net = net.to(BFLOAT16)
        tokens = torch.randint(0, 32000, (4, length))
    return _training(net, lambda call: call(tokens), options)


def fit(device: str, tiny: bool, options: Options) -> Step:
    """Eight steps of Lightning's Trainer with a perceptron, 4096 rows each."""
    import lightning

    width, rows = (64, 32) if tiny else (2048, 4096)

    class Regression(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(width, 2 * width),
                torch.nn.GELU(),
                torch.nn.Linear(2 * width, width),
            )
            self.last = torch.zeros(())

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            loss = self.layers(batch).square().mean()
            self.last = loss.detach()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    net = Regression()
    call = torch.compile(net, options=options)
    data = torch.utils.data.DataLoader(torch.randn(8 * rows, width), batch_size=rows)

    def step() -> torch.Tensor:
        trainer = lightning.Trainer(
            accelerator=device, devices=1, precision="bf16-true", max_epochs=1, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(call, data)
        return net.last

    return step


PROGRAMS: dict[str, Callable[[str, bool, Options], Step]] = {
    "Flux blocks": flux_blocks,
    "Qwen3 decode, batch 1": decode(1),
    "Qwen3 decode, batch 8": decode(8),
    "Qwen3 decode, batch 64": decode(64),
    "float8 Llama layers": quantised(
        "Float8DynamicActivationFloat8WeightConfig", set_inductor_config=False
    ),
    "LoRA training": lora,
    "Flux whole": flux_whole,
    "Qwen3 prefill": prefill,
    "Qwen3 generate": generate,
    "int8 Llama layers": quantised(
        "Int8DynamicActivationInt8WeightConfig", set_inductor_config=False
    ),
    "float8 training": float8_training,
    "float8 Llama layers, torchao's settings": quantised(
        "Float8DynamicActivationFloat8WeightConfig"
    ),
    "torchtitan Llama training": llama_training,
    "timm ViT": vision,
    "sentence-transformers BERT": sentences,
    "torch-geometric GAT": graph_attention,
    "gpytorch deep kernel": deep_kernel,
    "x-transformers training": decoder,
    "Lightning fit": fit,
}
CORE = list(PROGRAMS)[:6]
TALKS_TO_HOST = (
    "Qwen3 generate",
    "torch-geometric GAT",
    "gpytorch deep kernel",
    "Lightning fit",
)  # cannot be captured in a CUDA graph
