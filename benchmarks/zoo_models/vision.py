"""Vision models of timm, torchvision and transformers, and those of images and text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from zoo_models.record import Build, Built, Model, also, configured, hugging_face, tokens


def timm_model(name: str, batch: int, blocks: int | None = None, **options: Any) -> Build:
    """Of its blocks, where these cannot be counted by an option, the first ones."""

    def build() -> Built:
        import timm

        model = timm.create_model(name, **options)
        if blocks is not None:
            model.blocks = model.blocks[:blocks]
        return model, (torch.randn(batch, 3, 224, 224),)

    return build


def torchvision_model(name: str, *shape: int, **options: Any) -> Build:
    def build() -> Built:
        import torchvision

        return getattr(torchvision.models, name)(**options), (torch.randn(*shape),)

    return build


def resnet50(batch: int) -> Build:
    """One block of each width."""

    def build() -> Built:
        from torchvision.models.resnet import Bottleneck, ResNet

        return ResNet(Bottleneck, [1, 1, 1, 1]), (torch.randn(batch, 3, 224, 224),)

    return build


def images(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(*shape)


def _clip() -> Any:
    return configured(
        "CLIP", projection_dim=768,
        text_config={"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 2,
                     "num_attention_heads": 12},
        vision_config={"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 2,
                       "num_attention_heads": 16, "image_size": 224, "patch_size": 14},
    )  # fmt: skip


def _siglip(layers: int = 2) -> Any:
    return configured(
        "SiglipVision", hidden_size=1152, intermediate_size=4304, num_hidden_layers=layers,
        num_attention_heads=16, image_size=384, patch_size=14,
    )  # fmt: skip


def _vit(source: str, name: str, group: str, build: Build, **more: Any) -> Model:
    return Model(name, group, source, build, **more)


def _timm(name: str, build: Build, **more: Any) -> Model:
    return _vit("timm", name, "vision", build, **more)


def _torchvision(name: str, build: Build, **more: Any) -> Model:
    return _vit("torchvision", name, "vision", build, **more)


def _transformers(name: str, group: str, build: Build, **more: Any) -> Model:
    return _vit("transformers", name, group, build, **more)


_half: Any = {"dtype": torch.float16}
_single: Any = {"dtype": torch.float32}
_base = _timm("vit-base", timm_model("vit_base_patch16_224", 32, depth=2))
_clip_both = _transformers(
    "clip-vit-large", "multimodal",
    hugging_face(
        _clip,
        {"input_ids": lambda: tokens(16, 77, 1000), "pixel_values": images(16, 3, 224, 224)},
        ("logits_per_image", "text_embeds", "image_embeds"),
    ),
)  # fmt: skip

MODELS = (
    _transformers("siglip-so400m", "multimodal", hugging_face(
        _siglip, {"pixel_values": images(8, 3, 384, 384)}, kind="SiglipVisionModel")),
    _base,
    also(_base, "training", train=True),
    also(_base, "float32", **_single),
    also(_base, "dynamic", dynamic=True),
    _timm("vit-large-float16", timm_model("vit_large_patch16_224", 16, depth=2), **_half),
    _timm("vit-small-tf32", timm_model("vit_small_patch16_224", 32, depth=2), **_single,
          tf32=True),
    _timm("deit3-base-training-float16", timm_model("deit3_base_patch16_224", 16, depth=2),
          train=True, **_half),
    _timm("eva02-base", timm_model("eva02_base_patch14_224", 16, depth=2)),
    _timm("beit-base", timm_model("beit_base_patch16_224", 16, depth=2)),
    _timm("mixer-b16", timm_model("mixer_b16_224", 32, blocks=2)),
    _timm("mixer-b16-training", timm_model("mixer_b16_224", 32, blocks=2), train=True),
    _timm("gmlp-s16-float16", timm_model("gmlp_s16_224", 32, blocks=2), **_half),
    _timm("resmlp-24", timm_model("resmlp_24_224", 32, blocks=2)),
    _timm("swin-tiny", timm_model("swin_tiny_patch4_window7_224", 16, depths=(2, 2, 2, 2))),
    _timm("convnext-base", timm_model("convnext_base", 16, depths=(1, 1, 1, 1))),
    _timm("convnext-base-training", timm_model("convnext_base", 8, depths=(1, 1, 1, 1)),
          train=True),
    _timm("xcit-small", timm_model("xcit_small_12_p16_224", 8, depth=2)),
    _torchvision("resnet50", resnet50(32)),
    _torchvision("resnet50-training", resnet50(16), train=True),
    _torchvision("resnet50-training-float32", resnet50(16), train=True, **_single),
    _torchvision("mobilenet-v3-large-float16",
                 torchvision_model("mobilenet_v3_large", 32, 3, 224, 224), **_half),
    _torchvision("shufflenet-v2-float32",
                 torchvision_model("shufflenet_v2_x1_0", 32, 3, 224, 224), **_single),
    _torchvision("vgg11-float16", torchvision_model("vgg11", 16, 3, 224, 224), **_half),
    _torchvision("vit-b-16-torchvision", torchvision_model(
        "VisionTransformer", 16, 3, 224, 224, image_size=224, patch_size=16, num_layers=2,
        num_heads=12, hidden_dim=768, mlp_dim=3072)),
    _torchvision("efficientnet-b0-tf32", torchvision_model("efficientnet_b0", 16, 3, 224, 224),
                 **_single, tf32=True),
    _transformers("dinov2-base", "vision", hugging_face(
        lambda: configured("Dinov2", num_hidden_layers=2, image_size=518, patch_size=14),
        {"pixel_values": images(8, 3, 224, 224)})),
    _transformers("vit-mae-large-float32", "vision", hugging_face(
        lambda: configured("ViT", num_hidden_layers=1, hidden_size=1024, intermediate_size=4096,
                           num_attention_heads=16),
        {"pixel_values": images(8, 3, 224, 224)}), **_single),
    _transformers("segformer-b0", "vision", hugging_face(
        lambda: configured("Segformer", depths=[1, 1, 1, 1]),
        {"pixel_values": images(4, 3, 512, 512)})),
    _transformers("videomae-base", "vision", hugging_face(
        lambda: configured("VideoMAE", num_hidden_layers=1),
        {"pixel_values": images(2, 16, 3, 224, 224)})),
    _clip_both,
    also(_clip_both, "training", train=True),
    _transformers("bert-cross-attention-float16", "multimodal", hugging_face(
        lambda: configured("Bert", num_hidden_layers=1, add_cross_attention=True,
                           is_decoder=True, use_cache=False),
        {"input_ids": lambda: tokens(16, 32, 1000),
         "encoder_hidden_states": images(16, 257, 768)}), **_half),
    _transformers("blip-2-q-former", "multimodal", hugging_face(
        lambda: configured("Blip2QFormer", num_hidden_layers=2, encoder_hidden_size=1408),
        {"query_embeds": images(8, 32, 768), "encoder_hidden_states": images(8, 257, 1408)},
        kind="Blip2QFormerModel")),
    _transformers("owlvit-text", "multimodal", hugging_face(
        lambda: configured("CLIPText", hidden_size=512, num_hidden_layers=2),
        {"input_ids": lambda: tokens(32, 16, 1000)}, kind="CLIPTextModel")),
)  # fmt: skip
