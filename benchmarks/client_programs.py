"""Programs of libraries that call torch.compile, with random weights and the widths of real models.

`PROGRAMS[name](device, tiny, options)` builds one and returns its step, a function without
arguments that returns a tensor. `options` are torch.compile's, which the program gives to the
library's own call of it; `tiny` is for a trial on a CPU. Nothing imports Diode here.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _training(net: torch.nn.Module, run: Callable[[Any], torch.Tensor], options: Options) -> Step:
    """Forward, backward and AdamW."""
    parameters = [p for p in net.parameters() if p.requires_grad]
    on_gpu = parameters[0].is_cuda
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, capturable=on_gpu)
    call = torch.compile(net, options=options)

    def step() -> torch.Tensor:
        loss = run(call).float().mean()
        for parameter, grad in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = grad
        optimizer.step()
        return loss.detach()

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
}
CORE = list(PROGRAMS)[:6]
TALKS_TO_HOST = ("Qwen3 generate",)  # cannot be captured in a CUDA graph
