"""Facts that generate.py cannot read in the headers: good values, and which wrong ones fit a number.

A parameter is 'function.name'. Expectations: refused (an error), accepted (no error: documented as harmless), either.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts/options"))
import ops
import structs
from schema import Schema

CLASSES = ["valid", "NULL", "NULL element", "negative", "zero", "INT64_MAX", "overflow", "unknown enum", "unknown flag",
           "reserved", "not finite", "freed handle", "wrong kind", "second free", "struct_size", "newer struct",
           "NUL or not UTF-8", "bad memory", "in callback", "other thread", "race"]


def symbol(cls):
    return cls.replace(" ", "_").replace("-", "_")


HANDLES = {"trafo_error", "trafo_context", "trafo_tensor", "trafo_cancel", "trafo_adamw", "trafo_tokenizer",
           "trafo_corpus", "trafo_model", "trafo_trainer", "trafo_translations", "trafo_shortlist",
           "trafo_group", "trafo_generator"}

# Handles that a function needs others of than its kind's; by parameter, then by name.
HANDLE_VALUES = {
    "trafo_trainer_new_in_group.model": "w.free_model", "trafo_trainer_new_in_group.valid": "w.corpus",
    "trafo_trainer_new.model": "w.free_model", "trafo_model_prepare_inference.model": "w.free_model",
    "trafo_model_freeze.model": "w.free_model", "trafo_model_unfreeze.model": "w.free_model",
    "trafo_model_set_update_factors.model": "w.free_model",
    "trafo_model_set_special_tokens.model": "w.free_model",
    "trafo_model_load_weights.model": "w.free_model", "trafo_trainer_new.valid": "w.corpus",
    "trafo_tensor_set_requires_grad.tensor": "w.doubles", "trafo_tensor_get_grad.tensor": "w.leaf",
    "trafo_tensor_zero_grad.tensor": "w.leaf", "trafo_op_linear.bias": "w.row", "trafo_tensor_get_shape.tensor": "w.cube",
    "trafo_op_softmax.padding_mask": "NULL", "trafo_backward.upstream": "NULL", "trafo_tensor_read.tensor": "w.row",
    "trafo_tensor_write.tensor": "w.row", "mask": "w.ids", "trafo_tokenizer_with_languages.tokenizer": "w.bilingual",
    "trafo_chat_render.tokenizer": "w.chatting", "trafo_chat_encode.tokenizer": "w.chatting",
    "trafo_tokenizer_get_chat_template.tokenizer": "w.chatting", "trafo_corpus_write_ids.corpus": "w.plain",
    "trafo_op_gather.x": "w.row", "trafo_op_scatter.x": "w.row", "trafo_op_scatter_add.x": "w.row", "src": "w.row",
    "trafo_op_gather.index": "w.ids", "trafo_op_scatter.index": "w.ids", "trafo_op_scatter_add.index": "w.ids",
    "ids": "w.ids", "labels": "w.ids", "positions": "w.ids", "cu_seqlens": "w.offsets", "cu_seqlens_q": "w.offsets",
    "cu_seqlens_k": "w.offsets",
    "gamma": "w.row", "beta": "w.row", "bias": "w.row",
}
KIND_VALUES = {"trafo_tensor": "w.matrix"}


def handle(function, name, kind):
    return (HANDLE_VALUES.get(f"{function}.{name}") or HANDLE_VALUES.get(name) or KIND_VALUES.get(kind) or
            "w." + kind.removeprefix("trafo_"))


# Answers to NULL where the comment does not state them for this parameter alone.
NULL = {
    "trafo_backward.root": "refused", "trafo_backward.upstream": "accepted",
    "trafo_list_checkpoints.updates": "refused",  # with a capacity of 8
    "trafo_trainer_new.run_directory": "accepted",  # with length 0
    "trafo_trainer_new_in_group.run_directory": "accepted",
    "trafo_model_classify_ids.types": "accepted", "trafo_model_classify.second": "accepted",
    # Their corpora have text, and Marian's directory has a tokenizer.
    "trafo_trainer_new.tokenizer": "refused", "trafo_model_export.tokenizer": "refused",
    "trafo_trainer_new_in_group.train": "accepted",
    "trafo_model_set_special_tokens.further_ends": "refused",  # with a count of 1
    **{f"trafo_generator_{call}.{options}": "accepted" for call in ("start", "start_ids") for options in ("options", "generation")},
}

OUTPUTS = {"int32_t *": None, "int64_t *": None, "double *": None, "size_t *": None, "char **": "trafo_string_free",
           "int32_t **": "trafo_ids_free", "const char **": None, "trafo_string_view *": None,
           "const int32_t **": None, "const double **": None, "const float **": None}
PLAIN_OUTPUTS = set()
READ_SIZES = {"trafo_model_config_preset.config", "trafo_trainer_options_preset.options"}  # in and out: what is in them otherwise is not looked at

# Memory that comes out: a fresh piece of it.
MEMORY = {"char *": "fresh_string()", "int32_t *": "fresh_ids()"}

CALLBACKS = {"trafo_region_fn": "region_copies", "trafo_event_fn": "event_ignored", "trafo_rate_fn": "rate_same",
             "trafo_pair_fn": "pair_words", "trafo_batch_fn": "batch_words", "trafo_write_fn": "write_taken", "trafo_read_fn": "read_model",
             "trafo_progress_fn": "progress_heard"}

TWEAKS = {
    "trafo_context_options": ["@.threads = 1;"],
    "trafo_tokenizer_options": ["@.vocabulary = 30;", "@.soft_limit = 1;"],
    "trafo_model_config": ["@ = w.config;"],
    "trafo_trainer_options": ["trainer_settings(&@);"],
    "trafo_group_options": ["@.start_timeout_s = 0.01;"],  # ranks that never come
    "trafo_attention_options": ["@.head_dim = 2;"],
    "trafo_factorize_options": ["@.rank = 1;", "@.tokenizer = w.tokenizer;", "@.calibration = w.corpus;"],
}
LITERALS = {"trafo_special_tokens": ["@.unk = 0;", "@.bos = 1;", "@.eos = 2;", "@.pad = -1;"],
            "trafo_dropout": ["@.p = 0.5f;", "@.step = 1;", "@.dropout_id = 2;", "@.seed = 3;"]}


def struct_values(api, struct):
    if struct in LITERALS:
        return LITERALS[struct]
    init = struct + "_init" if struct != "trafo_model_config" else "trafo_model_config_init"
    if any(f.name == init for f in api.functions):
        return [f"must({init}(&@, sizeof @));"] + TWEAKS.get(struct, [])
    return []


STRUCT_SIZES = [("zero", "0"), ("struct_size", "1"), ("struct_size", "65537"), ("INT64_MAX", "INT64_MAX"),
                ("negative", "(size_t)-1")]
LENGTHS = [("negative", "(size_t)-1"), ("INT64_MAX", "INT64_MAX"), ("overflow", "SIZE_MAX / 2 + 2")]


def list_of(element, array_type, good, count=1):
    return {"field": f"{array_type}$; {element}$_v[{count}];", "good": f"@_v[0] = {good}; @ = @_v;"}


def handle_list(name, array_type, kind, good):
    element = f"{'const ' if 'const trafo' in array_type else ''}{kind} *"
    rule = list_of(element, array_type, good)
    rule["field"] = rule["field"].replace("$", name)
    rule["handles"] = ("@_v[0]", kind)
    return rule


TENSORS = "const trafo_tensor *const *"
DLPACK = "struct DLManagedTensorVersioned"
# Lists of handles, string views that are paths, memory of other libraries.
GOOD = {
    "trafo_op_concat.tensors": handle_list("tensors", TENSORS, "trafo_tensor", "w.matrix"),
    "trafo_checkpoint.inputs": handle_list("inputs", TENSORS, "trafo_tensor", "w.leaf"),
    "trafo_custom_op.inputs": handle_list("inputs", TENSORS, "trafo_tensor", "w.leaf"),
    "trafo_gradcheck.inputs": handle_list("inputs", TENSORS, "trafo_tensor", "w.leaf"),
    "trafo_adamw_new.parameters": handle_list("parameters", "trafo_tensor *const *", "trafo_tensor", "w.leaf"),
    "trafo_clip_grad_norm.parameters": handle_list("parameters", "trafo_tensor *const *", "trafo_tensor", "w.leaf"),
    "trafo_sgd_step.parameters": handle_list("parameters", "trafo_tensor *const *", "trafo_tensor", "w.leaf"),
    "trafo_sgd_step.velocities": handle_list("velocities", "trafo_tensor *const *", "trafo_tensor", "w.doubles"),
    "trafo_tensors_save.tensors": handle_list("tensors", TENSORS, "trafo_tensor", "w.row"),
    "trafo_tensors_read.tensors": handle_list("tensors", "trafo_tensor *const *", "trafo_tensor", "w.row"),
    "trafo_tensors_save.names": "good_lines", "trafo_tensors_load.names": "good_lines", "trafo_tensors_read.names": "good_lines",
    "trafo_corpus_mix.corpora": handle_list("corpora", "const trafo_corpus *const *", "trafo_corpus", "w.corpus"),
    **{f"trafo_{call}.outputs": {
        "field": "trafo_tensor **outputs; trafo_tensor *outputs_v[1];", "good": "@_v[0] = NULL; @ = @_v;",
        "clean": "if (@) trafo_tensor_free(@_v[0]);"} for call in ("checkpoint", "custom_op")},
    "trafo_backward.root": {"field": "const trafo_tensor *root; trafo_tensor *root_v;",
                            "good": "@_v = fresh_loss(); @ = @_v;", "clean": "trafo_tensor_free(@_v);",
                            "handles": ("@", "trafo_tensor")},
    "trafo_tensor_to_dlpack.out": {
        "field": f"{DLPACK} **out; {DLPACK} *out_v;", "good": "@_v = NULL; @ = &@_v;",
        "clean": "if (@ && @_v) { @_v->deleter(@_v); @_v = NULL; }"},
    "trafo_tensor_from_dlpack.managed": {
        "field": f"{DLPACK} *managed; {DLPACK} managed_v; int64_t dlpack_shape[8], dlpack_strides[8];",
        "good": "good_dlpack(&@_v, a->dlpack_shape); @ = &@_v;",
        "bends": [("bad memory", expect, f"@_v.{member} = {value};") for member, value, expect in [
            ("major", "0", "refused"), ("major", "9", "refused"), ("deleter", "NULL", "either"), ("data", "NULL", "refused"),
            ("device_type", "-1", "refused"), ("device_type", "12345", "refused"), ("device_type", "2", "refused"),
            ("device_id", "-1", "either"), ("ndim", "-1", "refused"), ("ndim", "9", "refused"), ("ndim", "INT32_MAX", "refused"),
            ("code", "99", "refused"), ("bits", "7", "refused"), ("lanes", "4", "refused"), ("lanes", "0", "refused"),
            ("shape", "NULL", "refused"), ("shape[0]", "-1", "refused"), ("shape[0]", "0", "either"),
            ("shape[0]", "INT64_MAX", "refused"), ("shape[0]", "INT64_MAX / 4 + 1", "refused"),
            ("byte_offset", "UINT64_MAX", "refused"), ("byte_offset", "INT64_MAX", "refused"), ("byte_offset", "1", "either"), ("flags", "UINT64_MAX", "either"),
            ("strides", "(a->dlpack_strides[0] = INT64_MAX, a->dlpack_strides)", "refused"),
            ("strides", "(a->dlpack_strides[0] = -1, a->dlpack_strides)", "either")]]},
    "trafo_trainer_save.trainer": {"field": "trafo_trainer *trainer, *trainer_v;", "good": "@ = @_v = fresh_saver();",
                                   "clean": "trafo_trainer_free(@_v);", "handles": ("@", "trafo_trainer")},
    **{f"trafo_model_{call}.model": {
        "field": f"{const}trafo_model *model; trafo_model *model_v;", "good": f"@ = @_v = fresh_adapted({state});",
        "clean": "trafo_model_free(@_v);", "handles": ("@", "trafo_model")}
       for call, const, state in [("add_adapter", "", 0), ("load_adapter", "", 0), ("save_adapter", "const ", 1),
                                  ("merge_adapter", "", 1), ("unmerge_adapter", "", 2), ("remove_adapter", "", 1),
                                  ("load_teacher", "", 0), ("remove_teacher", "", 3),
                                  ("load_reference", "", 0), ("remove_reference", "", 4)]},
    "trafo_model_with_adapter.base": {"field": "trafo_model *base, *base_v;", "good": "@ = @_v = fresh_adapted(5);",
                                      "clean": "trafo_model_free(@_v);", "handles": ("@", "trafo_model")},
    "trafo_corpus_get_rejected.corpus": {"field": "const trafo_corpus *corpus; trafo_corpus *corpus_v;",
                                         "good": "@ = @_v = fresh_preferences();", "clean": "trafo_corpus_free(@_v);",
                                         "handles": ("@", "trafo_corpus")},
    "trafo_score_text.model": {"field": "trafo_model *model, *model_v;", "good": "@ = @_v = fresh_language_model();",
                               "clean": "trafo_model_free(@_v);", "handles": ("@", "trafo_model")},
    **{f"trafo_model_{call}.model": {
        "field": f"{const}trafo_model *model; trafo_model *model_v;", "good": "@ = @_v = fresh_encoder();",
        "clean": "trafo_model_free(@_v);", "handles": ("@", "trafo_model")}
       for call, const in [("classify", ""), ("classify_ids", ""), ("get_label", "const "), ("with_head", "const ")]},
    "trafo_model_classify_ids.types": "good_types", "trafo_model_classify.second": "good_lines", "trafo_model_with_head.labels": "good_lines",
    "trafo_model_add_tokens.tokens": "good_tokens",
    "trafo_generator_new.model": {"field": "trafo_model *model, *model_v;", "good": "@ = @_v = fresh_prepared_model();",
                                  "clean": "trafo_model_free(@_v);", "handles": ("@", "trafo_model")},
    **{f"trafo_generator_{call}.generator": {
        "field": f"{const}trafo_generator *generator; trafo_generator *generator_v;", "good": f"@ = @_v = fresh_generator({started});",
        "clean": "trafo_generator_free(@_v);", "handles": ("@", "trafo_generator")}
       for call, const, started in [("load_draft", "", 0), ("start", "", 0), ("start_ids", "", 0), ("next", "", 1), ("end", "", 1), ("get_alternatives", "const ", 1)]},
    "trafo_trainer_load_best.trainer": {"field": "trafo_trainer *trainer, *trainer_v;", "good": "@ = @_v = fresh_validated();",
                                        "clean": "trafo_trainer_free(@_v);", "handles": ("@", "trafo_trainer")},
    "trafo_trainer_read.read": "read_checkpoint", "trafo_trainer_run.callback": "event_counter()",
    "trafo_translate_ids.prefixes": "good_prefixes",
    "trafo_corpus_open.paths": "good_paths", "trafo_average_models.paths": "good_model_paths",
    "trafo_plan_training.frozen": "good_patterns", "trafo_plan_training_of_rank.frozen": "good_patterns",
    "trafo_plan_distillation.frozen": "good_patterns",
}

PATH_BENDS = [("NUL or not UTF-8", "refused", "@ = \"a\\0b/\";"), ("NUL or not UTF-8", "either", "@ = \"\\xff\\xfe\";")]


def path(expression, length):
    return {"good": f"@ = {expression};", "bends": [
        ("NUL or not UTF-8", "either", f"@ = \"a\\0b\\0c\"; a->{length} = 5;"),
        ("NUL or not UTF-8", "either", f"@ = \"/\\xff\\xfe/x\"; a->{length} = 5;"),
        ("zero", "either", f"@ = \"\"; a->{length} = 0;")]}


# Plain memory: where it lies, what is good in it, wrong elements.
ARRAYS = {
    "trafo_tensor_new.shape": {"store": "int64_t @[8]", "good": "good_shape(@_v, 2); @ = @_v;", "bends": [
        ("negative", "refused", "@_v[0] = -1;"), ("zero", "either", "@_v[0] = 0;"),
        ("INT64_MAX", "refused", "@_v[0] = INT64_MAX;"),
        ("overflow", "refused", "@_v[0] = @_v[1] = (int64_t)1 << 32; a->rank = 2;"),
        ("overflow", "refused", "@_v[0] = INT64_MAX / 4 + 1;"),
        ("overflow", "refused", "@_v[0] = 0; @_v[1] = @_v[2] = (int64_t)1 << 40; a->rank = 3; a->data = NULL; a->bytes = 0;"),
        ("overflow", "refused", "@_v[0] = (int64_t)1 << 45; a->rank = 1; a->data = NULL; a->bytes = 0;")]},
    "trafo_op_reshape.shape": {"store": "int64_t @[8]", "good": "good_shape(@_v, 4); @ = @_v;", "bends": [
        ("negative", "refused", "@_v[0] = -2;"), ("negative", "refused", "@_v[0] = @_v[1] = -1; a->rank = 2;"),
        ("zero", "refused", "@_v[0] = 0;"), ("zero", "refused", "@_v[0] = 0; @_v[1] = -1; a->rank = 2;"),
        ("INT64_MAX", "refused", "@_v[0] = INT64_MAX;"),
        ("overflow", "refused", "@_v[0] = @_v[1] = (int64_t)1 << 32; a->rank = 2;")]},
    "trafo_tensor_random.shape": {"store": "int64_t @[8]", "good": "good_shape(@_v, 2); @ = @_v;", "bends": [
        ("negative", "refused", "@_v[0] = -1;"), ("zero", "either", "@_v[0] = 0;"),
        ("INT64_MAX", "refused", "@_v[0] = INT64_MAX;"),
        ("overflow", "refused", "@_v[0] = @_v[1] = (int64_t)1 << 32; a->rank = 2;"),
        ("overflow", "refused", "@_v[0] = INT64_MAX / 4 + 1;")]},
    "trafo_op_expand.shape": {"store": "int64_t @[8]", "good": "@_v[0] = @_v[1] = 2; @ = @_v;", "bends": [
        ("negative", "refused", "@_v[0] = -2;"), ("negative", "either", "@_v[0] = -1;"), ("zero", "refused", "@_v[0] = 0;"),
        ("INT64_MAX", "refused", "@_v[0] = INT64_MAX;"), ("overflow", "refused", "@_v[1] = INT64_MAX / 4 + 1;")]},
    **{f"trafo_tensors_{call}.path": path("w.files.tensors", "path_length") for call in ("load", "list", "read")},
    "trafo_adamw_load.path": path("w.files.adamw", "path_length"),
    "trafo_tensor_get_shape.shape": {"store": "int64_t @[8]", "good": "@ = @_v;"},
    "trafo_tensor_new.data": {"store": "float @[8]", "good": "memset(@_v, 0, sizeof @_v); @ = @_v;"},
    "trafo_tensor_read.data": {"store": "float @[8]", "good": "@ = @_v;"},
    "trafo_tensor_write.data": {"store": "float @[8]", "good": "memset(@_v, 0, sizeof @_v); @ = @_v;"},
    "trafo_corpus_mix.weights": {"store": "double @[1]", "good": "@_v[0] = 2; @ = @_v;", "bends": [
        ("negative", "refused", "@_v[0] = -1;"), ("zero", "refused", "@_v[0] = 0;"),
        ("not finite", "refused", "@_v[0] = NAN;"), ("not finite", "refused", "@_v[0] = INFINITY;"),
        ("INT64_MAX", "refused", "@_v[0] = 9.3e18;"), ("overflow", "refused", "@_v[0] = 1e300;")]},
    "trafo_tokenizer_decode.ids": {"store": "int32_t @[2]", "good": "@_v[0] = 4; @_v[1] = 5; @ = @_v;", "bends": [
        ("negative", "refused", "@_v[0] = -1;"), ("INT64_MAX", "refused", "@_v[1] = INT32_MAX;"),
        ("zero", "either", "@_v[0] = 0;")]},
    "trafo_model_set_special_tokens.further_ends": {"store": "int32_t @[1]", "good": "@_v[0] = 5; @ = @_v;", "bends": [
        ("negative", "refused", "@_v[0] = -1;"), ("INT64_MAX", "refused", "@_v[0] = INT32_MAX;"), ("zero", "either", "@_v[0] = 0;")]},
    "trafo_corpus_new_labelled.labels": {"store": "int32_t @[2]", "good": "@_v[0] = 1; @_v[1] = 0; @ = @_v;", "bends": [
        ("negative", "refused", "@_v[0] = -1;"), ("overflow", "refused", "@_v[0] = 2;")]},
    "trafo_tokenizer_load_buffer.data": {"good": "@ = tokenizer_bytes;", "bends": [
        ("bad memory", "refused", "a->bytes = 7;"), ("bad memory", "refused", "@ = (const uint8_t *)\"nonsense\"; a->bytes = 8;")]},
    "trafo_score.out_log_probability": {"store": "double @[3]", "good": "@ = @_v;"},
    "trafo_score.out_tokens": {"store": "int64_t @[3]", "good": "@ = @_v;"},
    "trafo_sentence_scores.out_bleu": {"store": "double @[3]", "good": "@ = @_v;"},
    "trafo_sentence_scores.out_chrf": {"store": "double @[3]", "good": "@ = @_v;"},
    "trafo_tokenizer_encode.text": {"good": "@ = \"alpha beta\";", "bends": [
        ("NUL or not UTF-8", "either", "@ = \"a\\0b\\xff\\xfe\"; a->text_length = 5;")]},
    "trafo_tokenizer_encode_target.text": {"good": "@ = \"alpha beta\";", "bends": [
        ("NUL or not UTF-8", "either", "@ = \"a\\0b\\xff\\xfe\"; a->text_length = 5;")]},
    "trafo_model_config_preset.name": {"good": "@ = \"tiny\";", "bends": [("NUL or not UTF-8", "refused", "@ = \"a\\0b\";")]},
    "trafo_trainer_options_preset.name": {"good": "@ = \"tiny\";", "bends": [("NUL or not UTF-8", "refused", "@ = \"a\\0b\";")]},
    "like": {"good": "@ = \"</s>\";", "bends": [
        ("NUL or not UTF-8", "refused", "@ = \"a\\0b\"; a->like_length = 3;"), ("zero", "either", "@ = \"\"; a->like_length = 0;")]},
    "targets": {"good": "@ = \"query,down\";", "bends": [
        ("NUL or not UTF-8", "refused", "@ = \"a\\0b\"; a->targets_length = 3;"), ("zero", "either", "@ = \"\"; a->targets_length = 0;")]},
    "pattern": {"good": "@ = \"*norm*\";", "bends": [
        ("NUL or not UTF-8", "refused", "@ = \"a\\0b\";"), ("zero", "refused", "@ = \"\"; a->pattern_length = 0;")]},
    **{f"trafo_tokenizer_with_languages.{side}": {"good": f"@ = \"{code}\";", "bends": [
        ("NUL or not UTF-8", "refused", f"@ = \"a\\0\\xff\\xfe\"; a->{side}_length = 4;"),
        ("zero", "refused", f"@ = \"\"; a->{side}_length = 0;")]} for side, code in (("source", "en_XX"), ("target", "de_DE"))},
    "trafo_tokenizer_with_chat_template.source": {"good": "@ = \"{{ messages }}\";", "bends": [
        ("NUL or not UTF-8", "refused", "@ = \"a\\0\\xff\\xfe\"; a->source_length = 4;"),
        ("bad memory", "refused", "@ = \"{% for\"; a->source_length = 6;"), ("zero", "either", "@ = \"\"; a->source_length = 0;")]},
    "conversation": {"good": "@ = \"{\\\"messages\\\": [{\\\"role\\\": \\\"user\\\", \\\"content\\\": \\\"alpha\\\"}]}\";", "bends": [
        ("NUL or not UTF-8", "refused", "@ = \"a\\0\\xff\\xfe\"; a->conversation_length = 4;"),
        ("bad memory", "refused", "@ = \"{}\"; a->conversation_length = 2;"), ("zero", "refused", "@ = \"\"; a->conversation_length = 0;")]},
    "trafo_tokenizer_load.path": path("w.files.tokenizer", "path_length"),
    "trafo_shortlist_load.path": path("w.files.shortlist", "path_length"),
    "trafo_corpus_load_tsv.path": path("w.files.tsv", "path_length"),
    "trafo_corpus_load.source_path": path("w.files.text", "source_length"),
    "trafo_corpus_load.target_path": path("w.files.text", "target_length"),
    "trafo_model_load.path": path("w.files.model", "path_length"),
    "trafo_model_load_as.path": path("w.files.model", "path_length"),
    "trafo_model_load_int8.path": path("w.files.model", "path_length"),
    "trafo_model_load_weights.path": path("w.files.model", "path_length"),
    "trafo_model_new_like.path": path("w.files.model", "path_length"),
    "trafo_model_load_teacher.path": path("w.files.model", "path_length"),
    "trafo_model_load_reference.path": path("w.files.model", "path_length"),
    "trafo_generator_load_draft.path": path("w.files.language", "path_length"),
    "trafo_model_load_run.run_directory": path("w.files.run", "run_directory_length"),
    "trafo_find_model.path": path("w.files.run", "path_length"),
    "trafo_find_checkpoint.run_directory": path("w.files.run", "run_directory_length"),
    "trafo_find_checkpoint.name": {"good": "@ = \"latest\";", "bends": [
        ("NUL or not UTF-8", "refused", "@ = \"a\\0\\xff\\xfe\"; a->name_length = 4;"), ("zero", "refused", "@ = \"\"; a->name_length = 0;")]},
    "trafo_list_checkpoints.run_directory": path("w.files.run", "run_directory_length"),
    "trafo_list_checkpoints.updates": {"store": "int64_t @[8]", "good": "@ = @_v;"},
    "trafo_model_read_config.path": path("w.files.model", "path_length"),
    "trafo_find_vocabulary.directory": path("w.files.run", "directory_length"),
    "trafo_average_models.output": path("fresh_path()", "output_length"),
    "trafo_model_export.directory": path("fresh_path()", "directory_length"),
    "trafo_model_load_adapter.directory": path("w.files.adapter", "directory_length"),
    "trafo_model_with_adapter.directory": path("w.files.adapter", "directory_length"),
    "trafo_model_save_adapter.directory": path("fresh_path()", "directory_length"),
    "trafo_model_import.directory": path("w.files.import", "directory_length"),
    "trafo_trainer_new.run_directory": {"good": "@ = NULL;"},
    "trafo_trainer_new_in_group.run_directory": {"good": "@ = NULL;"},
    "trafo_group_id_new.id": {"store": "uint8_t @[TRAFO_GROUP_ID_BYTES]", "good": "@ = @_v;"},
    "trafo_group_new.id": {"store": "uint8_t @[TRAFO_GROUP_ID_BYTES]",
                           "good": "must(trafo_group_id_new(TRAFO_TRANSPORT_LOCAL, @_v, sizeof @_v)); @ = @_v;",
                           "bends": [("bad memory", "refused", "@_v[0] ^= 1;")]},
    "trafo_group_id_of_master.id": {"store": "uint8_t @[TRAFO_GROUP_ID_BYTES]", "good": "@ = @_v;"},
    "trafo_group_id_of_master.token": {"good": "@ = (const uint8_t *)\"a0b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5\";", "bends": [
        ("zero", "refused", "a->token_length = 0;"), ("overflow", "refused", "a->token_length = 31;")]},
    "trafo_group_id_of_master.master": {"good": "@ = \"127.0.0.1:29400\";", "bends": [
        ("NUL or not UTF-8", "refused", "@ = \"a\\0:1\\xff\"; a->master_length = 5;"),
        ("zero", "refused", "@ = \"\"; a->master_length = 0;")]},
    "trafo_group_abort.reason": {"good": "@ = \"why\";", "bends": [
        ("NUL or not UTF-8", "either", "@ = \"a\\0\\xff\\xfe\"; a->reason_length = 4;"),
        ("zero", "either", "@ = \"\"; a->reason_length = 0;")]},
    "path": path("fresh_path()", "path_length"),
}

# Lists of dimensions of a matrix.
for op in ("sum_dims", "mean_dims", "max_dims", "min_dims", "permute"):
    ARRAYS[f"trafo_op_{op}.dims"] = {"store": "int32_t @[2]", "good": "@_v[0] = 1; @_v[1] = 0; @ = @_v;", "bends": [
        ("negative", "either", "@_v[0] = -1;"), ("negative", "refused", "@_v[0] = INT32_MIN;"),
        ("INT64_MAX", "refused", "@_v[0] = INT32_MAX;"), ("overflow", "refused", "@_v[0] = 2;")]}

HYPOTHESIS_RANKS = {f"trafo_translations_get{what}.rank" for what in ("", "_tokens", "_word_scores", "_alignment", "_finish")}

# Numbers: good values by parameter, then by name.
VALUES = {
    "dtype": "TRAFO_FLOAT32", "precision": "TRAFO_FLOAT32", "trafo_op_cast.dtype": "TRAFO_FLOAT64", "dim": "0", "dim0": "0",
    "dim1": "1", "keep_dim": "0", "transpose_a": "0", "transpose_b": "0", "causal": "0", "epsilon": "1e-5", "scale": "1",
    "factor": "2", "theta": "10000", "heads": "1", "kv_heads": "0", "head_dim": "2", "activation": "TRAFO_GELU",
    "start": "0", "stop": "1", "rank": "1", "adapter_rank": "1", **{rank: "0" for rank in HYPOTHESIS_RANKS}, "capacity": "8", "index": "0", "id": "5",
    "add_generation_prompt": "1", "threads": "2", "share": "1", "keep_graphs": "0", "recording": "1", "recorded": "1", "requires_grad": "1", "special": "1",
    "normalize": "1", "pooling": "TRAFO_POOLING_MEAN", "head": "TRAFO_ENCODER_HEAD_SEQUENCE", "device": "TRAFO_DEVICE_CPU", "code": "1",
    "copy": "TRAFO_COPY_IF_NEEDED", "format": "TRAFO_EXPORT_HF_MARIAN", "trafo_corpus_write_ids.format": "TRAFO_CORPUS_NANOGPT", "weights": "TRAFO_EXPORT_WEIGHTS_BY_FORMAT",
    "trafo_metric_score.metric": "TRAFO_METRIC_BLEU", "seed": "1", "identity": "7", "pairs": "3",
    "max_updates": "1", "update": "1", "sentences": "2", "source_tokens": "8", "target_tokens": "8", "lowercase": "0", "best": "2",
    "learning_rate": "0.1", "eps": "1e-6", "atol": "1e-5", "rtol": "1e-3", "chunk_bytes": "0", "positions": "2", "width": "2",
    "lr_factor": "1", "weight_decay_factor": "1", "alpha": "4",
    "amount": "2", "exponent": "2", "number": "1", "trafo_op_masked_fill.value": "1", "low": "-1", "high": "1", "diagonal": "0",
    "comparison": "TRAFO_LESS", "padding_id": "-1", "distribution": "TRAFO_UNIFORM", "a": "0", "b": "1", "k": "1", "trafo_op_permute.count": "2",
    "trafo_op_expand.rank": "2", "max_norm": "1", "momentum": "0.5", "weight_decay": "0.1",
    "count": "1", "input_count": "1", "output_count": "1", "bytes": "8", "trafo_tokenizer_load_buffer.bytes": "tokenizer_byte_count",
    "trafo_tokenizer_decode.count": "2", "trafo_average_models.count": "2", "trafo_plan_training_of_rank.size": "2",
    "trafo_plan_distillation.size": "2", "trafo_plan_adapter.size": "2", "hosts": "1",
    "trafo_tokenizer_train.count": "3", "trafo_corpus_new.count": "3", "trafo_corpus_new_preferences.count": "3", "trafo_corpus_new_labelled.count": "2", "trafo_shortlist_learn.count": "3",
    "trafo_translate.count": "3", "trafo_translate_with_prefixes.count": "3", "trafo_score_text.count": "3",
    "trafo_translate_ids.count": "3", "trafo_force_decode_ids.count": "3", "trafo_corpus_new_ids.count": "3",
    "trafo_model_embed.count": "3", "trafo_model_embed_ids.count": "3", "trafo_model_classify.count": "3",
    "trafo_model_classify_ids.count": "3", "trafo_model_with_head.count": "3", "trafo_model_add_tokens.count": "3",
    "trafo_model_hidden_states_ids.count": "3", "trafo_model_logits_ids.count": "3",
    "trafo_score.count": "3", "trafo_force_decode.count": "3", "trafo_metric_score.count": "3", "trafo_model_hidden_states.count": "3", "trafo_model_logits.count": "3",
    "frozen_count": "1", "trafo_generator_start.count": "3", "trafo_generator_start_ids.count": "3", "kept_sequences": "1", "sequence": "0",
    "trafo_bleu.count": "3", "trafo_chrf.count": "3", "trafo_evaluate.count": "3",
    "trafo_sentence_scores.count": "3",
    "reference_sets": "1",
    "run_directory_length": "0", "trafo_model_load_run.run_directory_length": "strlen(a->run_directory)",
    "trafo_find_checkpoint.run_directory_length": "strlen(a->run_directory)",
    "trafo_list_checkpoints.run_directory_length": "strlen(a->run_directory)", "which": "TRAFO_RUN_LAST",
    "trafo_corpus_hold_out.count": "1",
    "transport": "TRAFO_TRANSPORT_LOCAL", "id_bytes": "TRAFO_GROUP_ID_BYTES", "reason_length": "3", "master_length": "15", "token_length": "32",
}


def value(function, name, ctype):
    if name == "struct_size":
        return f"sizeof(a->{'options' if function.endswith('options_init') else 'config' if 'config_init' in function else 'out'}_v.v)"
    if f"{function}.{name}" in VALUES:
        return VALUES[f"{function}.{name}"]
    if name.endswith("_length") and name in ("path_length", "directory_length", "output_length", "text_length", "name_length", "pattern_length",
                                           "targets_length", "conversation_length", "like_length"):
        return f"strlen(a->{name.removesuffix('_length')})"
    if name in ("source_length", "target_length"):
        side = name.removesuffix("_length")
        return f"strlen(a->{side})" if function in ("trafo_tokenizer_with_languages", "trafo_tokenizer_with_chat_template") else f"strlen(a->{side}_path)"
    return VALUES.get(name)


# Options, ops and structs of schema/ are sorted by their types; these are the others, and exceptions.
ENUMS = {"bits", "copy", "device", "distribution", "format", "head", "metric", "pooling", "precision", "unit", "weights", "which"}
FLAGS = {"add_generation_prompt", "keep_graphs", "lowercase", "normalize", "recorded", "recording", "requires_grad", "special"}
ANY = {"code", "dropout_id", "first_line", "identity", "ignore_label", "step"}
INDEXES = {"index", "id", "eos", "sequence"}
COUNTS = {"id_bytes", "count", "user_symbol_count", "frozen_count", "keep_float_count", "layers_count", "stop_count", "stop_token_count",
          "banned_token_count", "logit_bias_count", "reference_sets", "input_count", "output_count", "bytes"}
# Negative is wrong; what is too large, or 0, is either refused or means what it says.
QUANTITIES = {"adapter_rank", "best", "capacity", "hosts", "kept_sequences", "max_updates", "pairs", "positions", "sentences", "source_tokens", "start", "stop",
              "target_tokens", "update", "value"}
# Any sign means something: a dimension counted from the end, no padding.
SIGNED = {"document_end", "padding_id", "bos", "pad", "unk"}
# Real numbers that an option holds must be numbers; those an op multiplies with may be anything.
# Above 0 and up to 1.
SHARES = {"share"}
REALS = {"a", "alpha", "atol", "b", "eps", "learning_rate", "lr_factor", "max_norm", "momentum", "p", "rtol", "theta",
         "weight_decay_factor"}
BOUNDS = {"high", "low"}  # either may be infinite
FACTORS = {"value"}


# A number for each layer, and 0 after the last.
LAYERS = set()


OPTION_KINDS = {"layers": LAYERS, "int": QUANTITIES, "bytes": QUANTITIES, "metrics": QUANTITIES, "seed": ANY, "real": REALS, "flag": FLAGS,
                "dtype": ENUMS, "metric": ENUMS}
for table in Schema().tables.values():
    for row in table.c_rows:
        if row.type not in ("period", "handle"):
            OPTION_KINDS.get(row.type, ENUMS).add(row.name)
OP_KINDS = {"int": QUANTITIES, "bytes": QUANTITIES, "offset": ANY, "dim": SIGNED, "flag": FLAGS, "dtype": ENUMS, "real": FACTORS}
STRUCT_KINDS = {"int": QUANTITIES, "int32": QUANTITIES, "flag": FLAGS, "real": REALS}
SORTED = (ENUMS, FLAGS, ANY, QUANTITIES, SIGNED, REALS, BOUNDS, FACTORS)
for member, kind in [*((each, OP_KINDS.get(each.kind)) for op in ops.read(Schema()) for each in op.parameters),
                     *((each, STRUCT_KINDS.get(each.type)) for struct in structs.read(Schema()) for each in struct.members)]:
    kind = ENUMS if member.enum else kind
    if kind is not None and not any(member.name in names for names in SORTED):
        kind.add(member.name)


def number(function, label, name, ctype):
    where = f"{function}.{label}"
    if name.startswith("reserved"):
        return [("reserved", v, "refused") for v in (("1", "-1") if "u" not in ctype else ("1",))]
    if ctype in ("double", "float"):
        if name in FACTORS:
            return [("not finite", "NAN", "either"), ("not finite", "INFINITY", "either"), ("negative", "-1", "either"),
                    ("zero", "0", "either")]
        if name in SHARES:
            return [("not finite", "NAN", "refused"), ("not finite", "INFINITY", "refused"), ("negative", "-1", "refused"),
                    ("zero", "0", "refused")]
        if name in BOUNDS:
            return [("not finite", "NAN", "refused"), ("not finite", "INFINITY", "either"), ("zero", "0", "either")]
        if name in REALS:
            return [("not finite", "NAN", "refused"), ("not finite", "INFINITY", "either"), ("not finite", "-INFINITY", "refused"),
                    ("negative", "-1", "either"), ("zero", "0", "either"), ("overflow", "3e38", "either")]
        return None
    wide = "64" in ctype or ctype == "size_t"
    largest = "INT64_MAX" if wide else "INT32_MAX"
    least = "INT64_MIN" if wide else "INT32_MIN"
    half = "((int64_t)1 << 62)" if wide else "((int32_t)1 << 30)"
    if name in ENUMS and ctype == "int32_t":
        return [("negative", "-1", "refused"), ("negative", least, "refused"), ("unknown enum", "12345", "refused"),
                ("INT64_MAX", largest, "refused"), ("zero", "0", "either")]
    if name in FLAGS:
        return [("negative", "-1", "refused"), ("negative", least, "refused"), ("unknown flag", "2", "refused"),
                ("unknown flag", "12345", "refused"), ("INT64_MAX", largest, "refused"), ("zero", "0", "either")]
    if name in ANY:
        signed = [] if ctype.startswith("u") else [("negative", "-1", "either"), ("negative", least, "either")]
        return signed + [("zero", "0", "either"), ("INT64_MAX", largest, "either"), ("overflow", half, "either")]
    if name == "struct_size":
        return [(c, v, "refused") for c, v in STRUCT_SIZES]
    if name in COUNTS or (name.endswith("_length") and ctype == "size_t"):
        if ctype != "size_t":
            return [("negative", "-1", "refused"), ("negative", least, "refused"), ("zero", "0", "either"),
                    ("INT64_MAX", largest, "refused"), ("overflow", half, "refused")]
        return [("zero", "0", "either")] + [(c, v, "refused") for c, v in LENGTHS] + [("overflow", "SIZE_MAX / 8 + 2", "refused")]
    if name in INDEXES or where in HYPOTHESIS_RANKS:
        below = [] if ctype == "size_t" else [("negative", "-1", "refused"), ("negative", least, "refused")]
        above = [("negative", "(size_t)-1", "refused")] if ctype == "size_t" else []
        return below + above + [("zero", "0", "either"), ("INT64_MAX", largest, "refused"), ("overflow", half, "refused")]
    if name in SIGNED:
        return [("negative", "-1", "either"), ("negative", least, "refused"), ("zero", "0", "either"),
                ("INT64_MAX", largest, "refused"), ("overflow", half, "refused")]
    if name in QUANTITIES:
        return [("negative", "-1", "refused"), ("negative", least, "refused"), ("zero", "0", "either"),
                ("INT64_MAX", largest, "either"), ("overflow", half, "either"),
                ("overflow", "(int64_t)3037000500" if wide else "46341", "either")]
    return None
