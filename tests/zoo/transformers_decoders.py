"""Causal language models of transformers."""

from __future__ import annotations

from typing import Any

from zoo.transformers_sizes import GPT, GROUPED, HEADS, SMALL, WORDS, language_model

EXPERTS: dict[str, Any] = {
    "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8, "decoder_sparse_step": 1,
}  # fmt: skip
EAGER = {"experts_implementation": "eager"}
LATENT: dict[str, Any] = {
    "q_lora_rank": 4, "kv_lora_rank": 4, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
    "v_head_dim": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
    "topk_group": 1, "n_shared_experts": 1, "moe_intermediate_size": 8,
}  # fmt: skip
MAMBA: dict[str, Any] = {"num_hidden_layers": 1, "state_size": 2, **WORDS}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", GPT),
    "gptj": ("GPTJForCausalLM", {**GPT, "rotary_dim": 4}),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        {**SMALL, "num_layers": 1, "num_heads": 2, "attention_types": [[["global"], 1]]},
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", SMALL),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", GPT),
    "codegen": (
        "CodeGenForCausalLM", {**GPT, "n_embd": 16, "n_head": 4, "rotary_dim": 4},
    ),
    "bloom": ("BloomForCausalLM", {"hidden_size": 8, "n_layer": 1, "n_head": 2, **WORDS}),
    "falcon": ("FalconForCausalLM", SMALL),
    "mpt": (
        "MptForCausalLM",
        {"d_model": 8, "n_heads": 2, "n_layers": 1, "max_seq_len": 16, **WORDS},
    ),
    "opt": ("OPTForCausalLM", {**SMALL, "ffn_dim": 12, "word_embed_proj_dim": 8}),
    "biogpt": ("BioGptForCausalLM", SMALL),
    "xglm": (
        "XGLMForCausalLM",
        {"d_model": 8, "ffn_dim": 12, "num_layers": 1, "attention_heads": 2,
         "max_position_embeddings": 16, **WORDS},
    ),
    "llama": ("LlamaForCausalLM", GROUPED),
    "mistral": ("MistralForCausalLM", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", HEADS),
    "gemma": ("GemmaForCausalLM", HEADS),
    "gemma2": ("Gemma2ForCausalLM", HEADS),
    "gemma3": ("Gemma3ForCausalLM", HEADS),
    "olmo": ("OlmoForCausalLM", GROUPED),
    "olmo2": ("Olmo2ForCausalLM", GROUPED),
    "cohere": ("CohereForCausalLM", GROUPED),
    "granite": ("GraniteForCausalLM", GROUPED),
    "stablelm": ("StableLmForCausalLM", GROUPED),
    "starcoder2": ("Starcoder2ForCausalLM", GROUPED),
    "phi": ("PhiForCausalLM", SMALL),
    "phi3": ("Phi3ForCausalLM", GROUPED),
    "smollm3": ("SmolLM3ForCausalLM", GROUPED),
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 3}),
    "mixtral_eager": (
        "MixtralForCausalLM", {**GROUPED, "num_local_experts": 3, **EAGER},
    ),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {**GROUPED, **EXPERTS}),
    "qwen2_moe_eager": ("Qwen2MoeForCausalLM", {**GROUPED, **EXPERTS, **EAGER}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**HEADS, **EXPERTS}),
    "deepseek_v2": (
        "DeepseekV2ForCausalLM", {**SMALL, **LATENT, "first_k_dense_replace": 0},
    ),
    "deepseek_v3": (
        "DeepseekV3ForCausalLM", {**SMALL, **LATENT, "first_k_dense_replace": 1},
    ),
    "deepseek_v3_moe": (
        "DeepseekV3ForCausalLM", {**SMALL, **LATENT, "first_k_dense_replace": 0},
    ),
    "mamba": ("MambaForCausalLM", {"hidden_size": 8, "time_step_rank": 2, **MAMBA}),
    "mamba2": (
        "Mamba2ForCausalLM",
        {"hidden_size": 8, "num_heads": 2, "head_dim": 8, "n_groups": 1, "chunk_size": 4,
         **MAMBA},
    ),
    "rwkv": (
        "RwkvForCausalLM",
        {"hidden_size": 8, "attention_hidden_size": 8, "num_hidden_layers": 2,
         "intermediate_size": 12, "context_length": 16, **WORDS},
    ),
}  # fmt: skip

REFUSED = {"xglm": "its masks overflow in float64, whoever runs it"}

for name, (cls, options) in FAMILIES.items():
    language_model(name, cls, options, REFUSED.get(name, ""))
