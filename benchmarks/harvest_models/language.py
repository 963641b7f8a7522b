"""Language models of transformers by their published sizes.

A size is that of the model's config.json on the Hugging Face hub, under the name given; what is not
given is the default of transformers' configuration class. (family, class of the configuration, name
on the hub, sizes.)
"""

from __future__ import annotations

from typing import Any

Entry = tuple[str, str, str, dict[str, Any]]


def _llama(
    hidden: int, inner: int, heads: int, kv: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    """The fields that most decoders share."""
    return {
        "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads,
        "num_key_value_heads": kv, "vocab_size": vocabulary, **more,
    }  # fmt: skip


def _neox(hidden: int, inner: int, heads: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads,
        "vocab_size": vocabulary, **more,
    }  # fmt: skip


def _opt(hidden: int, heads: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden, "ffn_dim": 4 * hidden, "num_attention_heads": heads,
        "word_embed_proj_dim": hidden, **more,
    }  # fmt: skip


DECODERS: tuple[Entry, ...] = (
    ("llama", "Llama", "meta-llama/Llama-2-7b-hf", _llama(4096, 11008, 32, 32, 32000)),
    ("llama", "Llama", "meta-llama/Llama-2-13b-hf", _llama(5120, 13824, 40, 40, 32000)),
    ("llama", "Llama", "meta-llama/Meta-Llama-3-8B", _llama(4096, 14336, 32, 8, 128256)),
    ("llama", "Llama", "meta-llama/Llama-3.1-70B", _llama(8192, 28672, 64, 8, 128256)),
    ("llama", "Llama", "meta-llama/Llama-3.2-1B", _llama(2048, 8192, 32, 8, 128256)),
    ("llama", "Llama", "meta-llama/Llama-3.2-3B",
     _llama(3072, 8192, 24, 8, 128256, head_dim=128)),
    ("tinyllama", "Llama", "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
     _llama(2048, 5632, 32, 4, 32000)),
    ("smollm2", "Llama", "HuggingFaceTB/SmolLM2-135M", _llama(576, 1536, 9, 3, 49152)),
    ("smollm2", "Llama", "HuggingFaceTB/SmolLM2-360M", _llama(960, 2560, 15, 5, 49152)),
    ("smollm2", "Llama", "HuggingFaceTB/SmolLM2-1.7B", _llama(2048, 8192, 32, 32, 49152)),
    ("yi", "Llama", "01-ai/Yi-6B", _llama(4096, 11008, 32, 4, 64000)),
    ("yi", "Llama", "01-ai/Yi-34B", _llama(7168, 20480, 56, 8, 64000)),
    ("falcon3", "Llama", "tiiuae/Falcon3-1B-Base",
     _llama(2048, 8192, 8, 4, 131072, head_dim=256)),
    ("falcon3", "Llama", "tiiuae/Falcon3-7B-Base",
     _llama(3072, 23040, 12, 4, 131072, head_dim=256)),
    ("deepseek", "Llama", "deepseek-ai/deepseek-coder-1.3b-base",
     _llama(2048, 5504, 16, 16, 32256)),
    ("deepseek", "Llama", "deepseek-ai/deepseek-llm-7b-base", _llama(4096, 11008, 32, 32, 102400)),
    ("open-llama", "Llama", "openlm-research/open_llama_3b_v2", _llama(3200, 8640, 32, 32, 32000)),
    ("mistral", "Mistral", "mistralai/Mistral-7B-v0.1", _llama(4096, 14336, 32, 8, 32000)),
    ("mistral", "Mistral", "mistralai/Mistral-Nemo-Base-2407",
     _llama(5120, 14336, 32, 8, 131072, head_dim=128)),
    ("mistral", "Mistral", "mistralai/Mistral-Small-24B-Base-2501",
     _llama(5120, 32768, 32, 8, 131072, head_dim=128)),
    ("qwen2", "Qwen2", "Qwen/Qwen2.5-0.5B", _llama(896, 4864, 14, 2, 151936)),
    ("qwen2", "Qwen2", "Qwen/Qwen2.5-1.5B", _llama(1536, 8960, 12, 2, 151936)),
    ("qwen2", "Qwen2", "Qwen/Qwen2.5-3B", _llama(2048, 11008, 16, 2, 151936)),
    ("qwen2", "Qwen2", "Qwen/Qwen2.5-7B", _llama(3584, 18944, 28, 4, 152064)),
    ("qwen2", "Qwen2", "Qwen/Qwen2.5-14B", _llama(5120, 13824, 40, 8, 152064)),
    ("qwen2", "Qwen2", "Qwen/Qwen2.5-72B", _llama(8192, 29568, 64, 8, 152064)),
    ("qwen3", "Qwen3", "Qwen/Qwen3-0.6B", _llama(1024, 3072, 16, 8, 151936, head_dim=128)),
    ("qwen3", "Qwen3", "Qwen/Qwen3-4B", _llama(2560, 9728, 32, 8, 151936, head_dim=128)),
    ("qwen3", "Qwen3", "Qwen/Qwen3-14B", _llama(5120, 17408, 40, 8, 151936, head_dim=128)),
    ("gemma", "Gemma", "google/gemma-2b", _llama(2048, 16384, 8, 1, 256000, head_dim=256)),
    ("gemma", "Gemma", "google/gemma-7b", _llama(3072, 24576, 16, 16, 256000, head_dim=256)),
    ("gemma2", "Gemma2", "google/gemma-2-2b", _llama(2304, 9216, 8, 4, 256000, head_dim=256)),
    ("gemma2", "Gemma2", "google/gemma-2-9b", _llama(3584, 14336, 16, 8, 256000, head_dim=256)),
    ("gemma3", "Gemma3Text", "google/gemma-3-1b-pt",
     _llama(1152, 6912, 4, 1, 262144, head_dim=256)),
    ("gemma3", "Gemma3Text", "google/gemma-3-12b-pt",
     _llama(3840, 15360, 16, 8, 262208, head_dim=256)),
    ("phi", "Phi", "microsoft/phi-1_5", _llama(2048, 8192, 32, 32, 51200)),
    ("phi", "Phi", "microsoft/phi-2",
     _llama(2560, 10240, 32, 32, 51200, partial_rotary_factor=0.4)),
    ("phi3", "Phi3", "microsoft/Phi-3-mini-4k-instruct",
     _llama(3072, 8192, 32, 32, 32064, pad_token_id=0)),
    ("phi3", "Phi3", "microsoft/phi-4", _llama(5120, 17920, 40, 10, 100352, pad_token_id=0)),
    ("olmo", "Olmo", "allenai/OLMo-1B-hf", _llama(2048, 8192, 16, 16, 50304)),
    ("olmo2", "Olmo2", "allenai/OLMo-2-1124-7B", _llama(4096, 11008, 32, 32, 100352)),
    ("olmo3", "Olmo3", "allenai/Olmo-3-1025-7B", _llama(4096, 11008, 32, 32, 100278)),
    ("smollm3", "SmolLM3", "HuggingFaceTB/SmolLM3-3B",
     _llama(2048, 11008, 16, 4, 128256, pad_token_id=0)),
    ("starcoder2", "Starcoder2", "bigcode/starcoder2-3b", _llama(3072, 12288, 24, 2, 49152)),
    ("starcoder2", "Starcoder2", "bigcode/starcoder2-15b", _llama(6144, 24576, 48, 4, 49152)),
    ("stablelm", "StableLm", "stabilityai/stablelm-2-1_6b", _llama(2048, 5632, 32, 32, 100352)),
    ("granite", "Granite", "ibm-granite/granite-3.1-2b-base", _llama(2048, 8192, 32, 8, 49152)),
    ("cohere", "Cohere", "CohereForAI/aya-23-8B", _llama(4096, 14336, 32, 8, 256000)),
    ("cohere2", "Cohere2", "CohereForAI/c4ai-command-r7b-12-2024",
     _llama(4096, 14336, 32, 8, 256000)),
    ("glm4", "Glm4", "THUDM/GLM-4-9B-0414", _llama(4096, 13696, 32, 2, 151552, head_dim=128)),
    ("glm", "Glm", "THUDM/glm-edge-1.5b-chat",
     _llama(2048, 6144, 16, 4, 59264, head_dim=128)),
    ("nemotron", "Nemotron", "nvidia/Minitron-4B-Base",
     _llama(3072, 9216, 24, 8, 256000, head_dim=128)),
    ("exaone", "Exaone4", "LGAI-EXAONE/EXAONE-4.0-1.2B", _llama(2048, 4096, 32, 8, 102400)),
    ("ernie4.5", "Ernie4_5", "baidu/ERNIE-4.5-0.3B-PT",
     _llama(1024, 3072, 16, 2, 103424, head_dim=128)),
    ("seed-oss", "SeedOss", "ByteDance-Seed/Seed-OSS-36B-Instruct",
     _llama(5120, 27648, 80, 8, 155136, head_dim=128)),
    ("helium", "Helium", "kyutai/helium-1-2b", _llama(2048, 8192, 16, 8, 64000, head_dim=128)),
    ("hunyuan", "HunYuanDenseV1", "tencent/Hunyuan-1.8B-Instruct",
     _llama(2048, 6144, 16, 4, 120818, head_dim=128)),
    ("arcee", "Arcee", "arcee-ai/AFM-4.5B",
     _llama(2560, 18432, 20, 4, 128000, head_dim=128)),
    ("apertus", "Apertus", "swiss-ai/Apertus-8B-2509", _llama(4096, 21504, 32, 8, 131072)),
    ("lfm2", "Lfm2", "LiquidAI/LFM2-1.2B",
     _llama(2048, 12288, 32, 8, 65536, num_hidden_layers=2,
            layer_types=["conv", "full_attention"])),
    ("minicpm", "MiniCPM3", "openbmb/MiniCPM3-4B",
     _llama(2560, 6400, 40, 40, 73448, q_lora_rank=768, kv_lora_rank=256,
            qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64)),
    ("gpt2", "GPT2", "openai-community/gpt2", {}),
    ("gpt2", "GPT2", "openai-community/gpt2-medium", {"n_embd": 1024, "n_head": 16}),
    ("gpt2", "GPT2", "openai-community/gpt2-xl", {"n_embd": 1600, "n_head": 25}),
    ("pythia", "GPTNeoX", "EleutherAI/pythia-160m", _neox(768, 3072, 12, 50304)),
    ("pythia", "GPTNeoX", "EleutherAI/pythia-1b", _neox(2048, 8192, 8, 50304)),
    ("pythia", "GPTNeoX", "EleutherAI/pythia-2.8b", _neox(2560, 10240, 32, 50304)),
    ("gpt-neo", "GPTNeo", "EleutherAI/gpt-neo-125m",
     {"hidden_size": 768, "num_heads": 12, "attention_types": [[["global", "local"], 1]],
      "num_layers": 2}),
    ("gptj", "GPTJ", "EleutherAI/gpt-j-6b", {}),
    ("codegen", "CodeGen", "Salesforce/codegen-350M-mono",
     {"n_embd": 1024, "n_head": 16, "vocab_size": 51200, "rotary_dim": 32}),
    ("bigcode", "GPTBigCode", "bigcode/gpt_bigcode-santacoder",
     {"n_embd": 2048, "n_head": 16, "vocab_size": 49280}),
    ("opt", "OPT", "facebook/opt-125m", _opt(768, 12)),
    ("opt", "OPT", "facebook/opt-1.3b", _opt(2048, 32)),
    ("opt", "OPT", "facebook/opt-6.7b", _opt(4096, 32)),
    ("bloom", "Bloom", "bigscience/bloom-560m", {"hidden_size": 1024, "n_head": 16,
                                                 "vocab_size": 250880}),
    ("bloom", "Bloom", "bigscience/bloom-3b", {"hidden_size": 2560, "n_head": 32,
                                               "vocab_size": 250880}),
    ("falcon", "Falcon", "tiiuae/falcon-7b", {"hidden_size": 4544, "num_attention_heads": 71,
                                              "vocab_size": 65024}),
    ("mpt", "Mpt", "mosaicml/mpt-7b", {"d_model": 4096, "n_heads": 32, "vocab_size": 50432}),
    ("xglm", "XGLM", "facebook/xglm-564M", {"d_model": 1024, "ffn_dim": 4096,
                                            "attention_heads": 16, "vocab_size": 256008}),
    ("biogpt", "BioGpt", "microsoft/biogpt", {}),
    ("persimmon", "Persimmon", "adept/persimmon-8b-base", _neox(4096, 16384, 64, 262144)),
    ("ctrl", "CTRL", "Salesforce/ctrl", {}),
    ("openai-gpt", "OpenAIGPT", "openai-community/openai-gpt", {}),
    ("mamba", "Mamba", "state-spaces/mamba-130m-hf", {"hidden_size": 768}),
    ("nanochat", "NanoChat", "karpathy/nanochat-d20", _llama(1280, 5120, 10, 10, 65536)),
    ("modernbert-decoder", "ModernBertDecoder", "jhu-clsp/ettin-decoder-150m",
     {"vocab_size": 50368}),
    ("ministral", "Ministral3", "mistralai/Ministral-3-3B-Base-2512",
     _llama(3072, 9216, 32, 8, 131072, head_dim=128)),
    ("mixtral", "Mixtral", "mistralai/Mixtral-8x7B-v0.1",
     _llama(4096, 14336, 32, 8, 32000, num_local_experts=8)),
    ("qwen2-moe", "Qwen2Moe", "Qwen/Qwen1.5-MoE-A2.7B",
     _llama(2048, 5632, 16, 16, 151936, moe_intermediate_size=1408, num_experts=60)),
    ("qwen3-moe", "Qwen3Moe", "Qwen/Qwen3-30B-A3B",
     _llama(2048, 6144, 32, 4, 151936, head_dim=128, moe_intermediate_size=768,
            num_experts=128, num_experts_per_tok=8)),
    ("olmoe", "Olmoe", "allenai/OLMoE-1B-7B-0924", _llama(2048, 1024, 16, 16, 50304)),
    ("phimoe", "Phimoe", "microsoft/Phi-3.5-MoE-instruct", _llama(4096, 6400, 32, 8, 32064)),
    ("granitemoe", "GraniteMoe", "ibm-granite/granite-3.0-1b-a400m-base",
     _llama(1024, 512, 16, 8, 49155, num_local_experts=32, num_experts_per_tok=8)),
    ("gpt-oss", "GptOss", "openai/gpt-oss-20b",
     _llama(2880, 2880, 64, 8, 201088, head_dim=64, num_local_experts=32)),
    ("deepseek", "DeepseekV2", "deepseek-ai/DeepSeek-V2-Lite",
     _llama(2048, 10944, 16, 16, 102400, moe_intermediate_size=1408, kv_lora_rank=512,
            q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
            n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6,
            first_k_dense_replace=1, topk_method="greedy", n_group=1, topk_group=1)),
    ("glm4-moe", "Glm4Moe", "zai-org/GLM-4.5-Air",
     _llama(4096, 10944, 96, 8, 151552, head_dim=128, moe_intermediate_size=1408,
            n_routed_experts=128, num_experts_per_tok=8)),
    ("dbrx", "Dbrx", "databricks/dbrx-base", {"d_model": 6144, "n_heads": 48,
                                              "vocab_size": 100352}),
)  # fmt: skip


def _bert(hidden: int, inner: int, heads: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads, **more,
    }  # fmt: skip


_ROBERTA: dict[str, Any] = {
    "vocab_size": 50265, "max_position_embeddings": 514, "pad_token_id": 1, "type_vocab_size": 1
}  # fmt: skip
_DEBERTA_V3: dict[str, Any] = {
    "vocab_size": 128100, "relative_attention": True, "position_buckets": 256,
    "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
    "max_relative_positions": -1, "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip

ENCODERS: tuple[Entry, ...] = (
    ("bert", "Bert", "google-bert/bert-base-uncased", {}),
    ("bert", "Bert", "google-bert/bert-large-uncased", _bert(1024, 4096, 16)),
    ("bert", "Bert", "prajjwal1/bert-tiny", _bert(128, 512, 2)),
    ("bert", "Bert", "prajjwal1/bert-medium", _bert(512, 2048, 8)),
    ("minilm", "Bert", "sentence-transformers/all-MiniLM-L6-v2", _bert(384, 1536, 12)),
    ("roberta", "Roberta", "FacebookAI/roberta-base", _bert(768, 3072, 12, **_ROBERTA)),
    ("roberta", "Roberta", "FacebookAI/roberta-large", _bert(1024, 4096, 16, **_ROBERTA)),
    ("xlm-roberta", "XLMRoberta", "FacebookAI/xlm-roberta-base",
     _bert(768, 3072, 12, **{**_ROBERTA, "vocab_size": 250002})),
    ("camembert", "Camembert", "almanach/camembert-base",
     _bert(768, 3072, 12, **{**_ROBERTA, "vocab_size": 32005})),
    ("distilbert", "DistilBert", "distilbert/distilbert-base-uncased", {}),
    ("albert", "Albert", "albert/albert-base-v2", {
        "embedding_size": 128, **_bert(768, 3072, 12), "vocab_size": 30000}),
    ("albert", "Albert", "albert/albert-xxlarge-v2", {"embedding_size": 128,
                                                      **_bert(4096, 16384, 64)}),
    ("electra", "Electra", "google/electra-small-discriminator", {}),
    ("electra", "Electra", "google/electra-base-discriminator",
     _bert(768, 3072, 12, embedding_size=768)),
    ("deberta", "DebertaV2", "microsoft/deberta-v3-small", _bert(768, 3072, 12, **_DEBERTA_V3)),
    ("deberta", "DebertaV2", "microsoft/deberta-v3-large", _bert(1024, 4096, 16, **_DEBERTA_V3)),
    ("mpnet", "MPNet", "microsoft/mpnet-base", {}),
    ("modernbert", "ModernBert", "answerdotai/ModernBERT-base", {}),
    ("modernbert", "ModernBert", "answerdotai/ModernBERT-large", _bert(1024, 2624, 16)),
    ("eurobert", "EuroBert", "EuroBERT/EuroBERT-210m",
     _llama(768, 3072, 12, 12, 128256)),
    ("nomic-bert", "NomicBert", "nomic-ai/nomic-embed-text-v1.5", {}),
    ("esm", "Esm", "facebook/esm2_t12_35M_UR50D",
     _bert(480, 1920, 20, vocab_size=33, pad_token_id=1, position_embedding_type="rotary")),
    ("esm", "Esm", "facebook/esm2_t33_650M_UR50D",
     _bert(1280, 5120, 20, vocab_size=33, pad_token_id=1, position_embedding_type="rotary")),
    ("mobilebert", "MobileBert", "google/mobilebert-uncased", {}),
    ("squeezebert", "SqueezeBert", "squeezebert/squeezebert-uncased", {}),
    ("convbert", "ConvBert", "YituTech/conv-bert-base", {}),
    ("xlnet", "XLNet", "xlnet/xlnet-base-cased", {"d_model": 768, "n_head": 12, "d_inner": 3072}),
    ("rembert", "RemBert", "google/rembert", {}),
    ("roformer", "RoFormer", "junnyu/roformer_chinese_base", {}),
    ("fnet", "FNet", "google/fnet-base", {}),
    ("layoutlm", "LayoutLM", "microsoft/layoutlm-base-uncased", {}),
    ("ernie", "Ernie", "nghuyong/ernie-3.0-base-zh", {"vocab_size": 40000}),
    ("megatron-bert", "MegatronBert", "nvidia/megatron-bert-uncased-345m", {}),
    ("nystromformer", "Nystromformer", "uw-madison/nystromformer-512", {}),
    ("ibert", "IBert", "kssteven/ibert-roberta-base", _ROBERTA),
    ("data2vec-text", "Data2VecText", "facebook/data2vec-text-base", _ROBERTA),
    ("splinter", "Splinter", "tau/splinter-base", {}),
    ("yoso", "Yoso", "uw-madison/yoso-4096", {"use_expectation": True}),
    ("funnel", "Funnel", "funnel-transformer/small", {"block_sizes": [1, 1, 1]}),
    ("lilt", "Lilt", "SCUT-DLVCLab/lilt-roberta-en-base", {}),
    ("big-bird", "BigBird", "google/bigbird-roberta-base", {"attention_type": "original_full"}),
    ("reformer", "Reformer", "google/reformer-crime-and-punishment", {}),
    ("xmod", "Xmod", "facebook/xmod-base", {"default_language": "en_XX", "pad_token_id": 1}),
    ("flaubert", "Flaubert", "flaubert/flaubert_base_cased",
     {"emb_dim": 768, "n_heads": 12, "n_layers": 1}),
    ("clip", "CLIPText", "openai/clip-vit-base-patch32", _bert(512, 2048, 8)),
    ("clip", "CLIPText", "openai/clip-vit-large-patch14", _bert(768, 3072, 12)),
    ("siglip", "SiglipText", "google/siglip-base-patch16-224", {}),
)  # fmt: skip


def _t5(model: int, inner: int, heads: int, **more: Any) -> dict[str, Any]:
    return {"d_model": model, "d_kv": 64, "d_ff": inner, "num_heads": heads, **more}


def _bart(model: int, inner: int, heads: int, **more: Any) -> dict[str, Any]:
    return {
        "d_model": model, "encoder_ffn_dim": inner, "decoder_ffn_dim": inner,
        "encoder_attention_heads": heads, "decoder_attention_heads": heads, **more,
    }  # fmt: skip


_GATED = {"feed_forward_proj": "gated-gelu"}

BOTH: tuple[Entry, ...] = (
    ("t5", "T5", "google-t5/t5-small", _t5(512, 2048, 8)),
    ("t5", "T5", "google-t5/t5-base", _t5(768, 3072, 12)),
    ("t5", "T5", "google/flan-t5-xl", _t5(2048, 5120, 32, **_GATED)),
    ("mt5", "MT5", "google/mt5-small", _t5(512, 1024, 6, **_GATED)),
    ("umt5", "UMT5", "google/umt5-base", _t5(768, 2048, 12, **_GATED)),
    ("longt5", "LongT5", "google/long-t5-local-base", _t5(768, 2048, 12, **_GATED)),
    ("byt5", "T5", "google/byt5-small", _t5(1472, 3584, 6, vocab_size=384, **_GATED)),
    ("bart", "Bart", "facebook/bart-base", _bart(768, 3072, 12)),
    ("bart", "Bart", "facebook/bart-large", _bart(1024, 4096, 16)),
    ("mbart", "MBart", "facebook/mbart-large-50", _bart(1024, 4096, 16, vocab_size=250054)),
    ("pegasus", "Pegasus", "google/pegasus-large", _bart(1024, 4096, 16, vocab_size=96103)),
    ("marian", "Marian", "Helsinki-NLP/opus-mt-en-de", _bart(512, 2048, 8, vocab_size=58101)),
    ("m2m100", "M2M100", "facebook/m2m100_418M", _bart(1024, 4096, 16, vocab_size=128112)),
    ("blenderbot", "BlenderbotSmall", "facebook/blenderbot_small-90M", _bart(512, 2048, 16)),
    ("plbart", "PLBart", "uclanlp/plbart-base", _bart(768, 3072, 12)),
    ("led", "LED", "allenai/led-base-16384", _bart(768, 3072, 12, attention_window=[256])),
    ("prophetnet", "ProphetNet", "microsoft/prophetnet-large-uncased", {}),
    ("fsmt", "FSMT", "facebook/wmt19-en-de", {"src_vocab_size": 42024, "tgt_vocab_size": 42024}),
    ("switch", "SwitchTransformers", "google/switch-base-8", {"num_experts": 8}),
    ("bigbird-pegasus", "BigBirdPegasus", "google/bigbird-pegasus-large-arxiv",
     {"attention_type": "original_full"}),
)  # fmt: skip
