"""The part of capi/include/trafo.h that op_accuracy.py needs, through ctypes; tensors cross as torch CPU tensors."""
import ctypes
from ctypes import c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

import torch

DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.int32: 3}
TORCH_DTYPES = {number: dtype for dtype, number in DTYPES.items()}
DEVICES = {"cpu": 0, "cuda": 1}
RELU, GELU, SILU, GELU_ERF = 0, 1, 2, 3
REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}


class ContextOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("device", c_int32), ("device_index", c_int32), ("threads", c_int32),
                ("fused_kernels", c_int32)]


class Dropout(ctypes.Structure):
    _fields_ = [("p", c_float), ("step", c_uint32), ("dropout_id", c_uint32), ("reserved", c_uint32), ("seed", c_uint64)]


class EmbeddingOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("scale", c_double), ("padding_id", c_int64), ("positions", c_void_p),
                ("position_table", c_void_p), ("dropout", Dropout)]


class AttentionOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("heads", c_int64), ("kv_heads", c_int64), ("head_dim", c_int64), ("q_column", c_int64),
                ("k_column", c_int64), ("v_column", c_int64), ("scale", c_double), ("causal", c_int32),
                ("reserved", c_int32), ("dropout", Dropout), ("mask", c_void_p), ("window", c_int64)]


class CrossEntropyOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("label_smoothing", c_double), ("ignore_label", c_int32),
                ("reduction", c_int32), ("weights", c_void_p), ("class_weights", c_void_p)]


class AdamWOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("beta1", c_double), ("beta2", c_double), ("epsilon", c_double),
                ("weight_decay", c_double), ("clip_norm", c_double)]


# Arguments of every function that is called: p pointer or handle, i int32, l int64, d double, z size_t.
SIGNATURES = {
    "context_options_init": "pz", "context_new": "pp", "context_trim_memory": "p",
    "tensor_new": "pipipzp", "tensor_get_dtype": "pp", "tensor_get_shape": "ppip", "tensor_read": "ppz",
    "tensor_write": "ppz", "tensor_set_requires_grad": "pi", "tensor_get_grad": "pp", "backward": "ppp",
    "op_add": "pppp", "op_subtract": "pppp", "op_multiply": "pppp", "op_divide": "pppp", "op_scale": "ppdp",
    "op_shift": "ppdp", "op_exp": "ppp", "op_log": "ppp", "op_sqrt": "ppp", "op_tanh": "ppp", "op_sigmoid": "ppp",
    "op_sum": "ppp", "op_mean": "ppp", "op_sum_dim": "ppiip", "op_mean_dim": "ppiip", "op_max_dim": "ppiip",
    "op_reshape": "pppip", "op_transpose": "ppiip", "op_slice": "ppillp", "op_concat": "ppzip", "op_cast": "ppip",
    "op_matmul": "pppiip", "op_linear": "ppppp", "op_dropout": "pppp", "op_embedding": "ppppp",
    "op_rms_norm": "pppdp", "op_residual_rms_norm": "ppppdppp", "op_rotary": "pppllldp",
    "op_swiglu": "ppp", "op_layer_norm": "ppppdp", "op_softmax": "ppdipp", "op_attention": "pppppppp", "op_activation": "ppip",
    "op_abs": "ppp", "op_sin": "ppp", "op_cos": "ppp", "op_erf": "ppp", "op_gelu_erf": "ppp", "op_power": "ppdp",
    "op_clamp": "ppddp", "op_maximum": "pppp", "op_minimum": "pppp", "op_pow": "pppp", "op_compare": "pppip",
    "op_compare_number": "ppdip", "op_where": "ppppp", "op_masked_fill": "pppdp", "op_tril": "pplp", "op_triu": "pplp",
    "op_sum_dims": "pppzip", "op_mean_dims": "pppzip", "op_max_dims": "pppzip", "op_min_dims": "pppzip",
    "op_argmax": "ppiip", "op_argmin": "ppiip", "op_top_k": "pplipp", "op_cumsum": "ppip", "op_permute": "pppzp",
    "op_expand": "pppip", "op_gather": "ppipp", "op_scatter": "ppippp", "op_scatter_add": "ppippp",
    "op_bias_act_dropout": "pppipp", "op_bias_dropout_residual": "pppppp",
    "op_bias_dropout_residual_norm": "ppppppdppp", "op_cross_entropy": "pppppp",
    "op_linear_cross_entropy": "pppppplpp", "attention_options_init": "pz", "cross_entropy_options_init": "pz",
    "sinusoidal_positions": "pllip", "embedding_options_init": "pz", "op_soft_cross_entropy": "ppppp", "adamw_options_init": "pz", "adamw_new": "ppzpp", "adamw_step": "pdp",
}
TYPES = {"p": c_void_p, "i": c_int32, "l": c_int64, "d": c_double, "z": c_size_t}


class TrafoError(Exception):
    pass


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        for name, letters in SIGNATURES.items():
            function = getattr(self.c, "trafo_" + name)
            function.argtypes = [TYPES[letter] for letter in letters]
            function.restype = c_void_p
        for name in ("error_message", "error_origin", "code_name", "version"):
            function = getattr(self.c, "trafo_error_code_name" if name == "code_name" else "trafo_" + name)
            function.restype = ctypes.c_char_p
        for name in ("error_code", "error_message", "error_origin", "error_free", "tensor_free", "context_free",
                     "adamw_free"):
            getattr(self.c, "trafo_" + name).argtypes = [c_void_p]
        self.c.trafo_error_code_name.argtypes = [c_int32]
        for name in ("error_free", "tensor_free", "context_free", "adamw_free"):
            getattr(self.c, "trafo_" + name).restype = None

    def version(self):
        return self.c.trafo_version().decode()

    def call(self, name, *arguments):
        error = getattr(self.c, "trafo_" + name)(*arguments)
        if error:
            code = self.c.trafo_error_code_name(self.c.trafo_error_code(error)).decode()
            message = self.c.trafo_error_message(error).decode()
            origin = self.c.trafo_error_origin(error).decode()
            self.c.trafo_error_free(error)
            raise TrafoError(f"{code} from {origin}: {message}")

    def options(self, kind, name, **values):
        """An options struct with the library's defaults and these members."""
        options = kind()
        self.call(name + "_options_init", ctypes.byref(options), ctypes.sizeof(options))
        for member, value in values.items():
            setattr(options, member, value.handle if isinstance(value, Tensor) else value)
        return options


class Tensor:
    """A handle; freed with the object."""

    def __init__(self, context, handle):
        self.context, self.library, self.handle = context, context.library, handle

    def __del__(self):
        self.library.c.trafo_tensor_free(self.handle)

    def dtype(self):
        out = c_int32()
        self.library.call("tensor_get_dtype", self.handle, ctypes.byref(out))
        return TORCH_DTYPES[out.value]

    def shape(self):
        sizes, rank = (c_int64 * 8)(), c_int32()
        self.library.call("tensor_get_shape", self.handle, sizes, 8, ctypes.byref(rank))
        return list(sizes[:rank.value])

    def read(self):
        host = torch.empty(self.shape(), dtype=self.dtype())
        self.library.call("tensor_read", self.handle, host.data_ptr(), host.numel() * host.element_size())
        return host

    def want_grad(self):
        self.library.call("tensor_set_requires_grad", self.handle, 1)
        return self

    def grad(self):
        out = c_void_p()
        self.library.call("tensor_get_grad", self.handle, ctypes.byref(out))
        return Tensor(self.context, out.value) if out.value else None


class Context:
    """A device. op("name", ...) calls trafo_op_name and wraps its results; None is a NULL argument."""

    def __init__(self, library, device, threads=0, fused=True):
        self.library, self.device = library, device
        options = library.options(ContextOptions, "context", device=DEVICES[device], threads=threads,
                                  fused_kernels=int(fused))
        out = c_void_p()
        library.call("context_new", ctypes.byref(options), ctypes.byref(out))
        self.handle = out.value

    def __del__(self):
        if getattr(self, "handle", None):
            self.library.c.trafo_context_free(self.handle)

    def tensor(self, value):
        value = value.contiguous()
        shape = (c_int64 * max(1, value.dim()))(*value.shape)
        count, out = value.numel(), c_void_p()
        self.library.call("tensor_new", self.handle, DTYPES[value.dtype], shape, value.dim(),
                          value.data_ptr() if count else None, count * value.element_size(), ctypes.byref(out))
        return Tensor(self, out.value)

    def op(self, name, *arguments, results=1):
        return self.function("op_" + name, *arguments, results=results)

    def function(self, name, *arguments, results=1):
        plain = [a.handle if isinstance(a, Tensor) else ctypes.byref(a) if isinstance(a, ctypes.Structure) else a
                 for a in arguments]
        outs = [c_void_p() for _ in range(results)]
        self.library.call(name, self.handle, *plain, *[ctypes.byref(out) for out in outs])
        tensors = [Tensor(self, out.value) for out in outs]
        return tensors[0] if results == 1 else tensors

    def reshape(self, x, shape):
        return self.op("reshape", x, (c_int64 * max(1, len(shape)))(*shape), len(shape))

    def concat(self, tensors, dim):
        return self.op("concat", (c_void_p * len(tensors))(*[t.handle for t in tensors]), len(tensors), dim)

    def backward(self, root, upstream):
        self.library.call("backward", self.handle, root.handle, upstream.handle)

    def embedding(self, ids, table, **values):
        return self.op("embedding", ids, table, self.library.options(EmbeddingOptions, "embedding", **values))

    def attention(self, q, k, v, cu_q, cu_k, **values):
        options = self.library.options(AttentionOptions, "attention", **values)
        return self.op("attention", q, k, v, cu_q, cu_k, options)

    def cross_entropy_options(self, reduction="mean", **values):
        return self.library.options(CrossEntropyOptions, "cross_entropy", reduction=REDUCTIONS[reduction], **values)

    def poison(self, sizes, copies):
        """Puts blocks full of NaN bytes on top of the allocator's free lists for requests of these sizes in bytes.

        The blocks stand side by side before the first is freed, so that older free blocks of that size are
        overwritten too.
        """
        for size in sizes:
            elements = (size + 3) // 4
            trash = torch.full([elements], -1, dtype=torch.int32)
            blocks = [self.tensor(trash) for _ in range(copies)]
            del blocks

    def trim(self):
        self.library.call("context_trim_memory", self.handle)


class AdamW:
    def __init__(self, context, parameters, **values):
        self.library, self.parameters = context.library, parameters
        options = self.library.options(AdamWOptions, "adamw", **values)
        handles, out = (c_void_p * len(parameters))(*[p.handle for p in parameters]), c_void_p()
        self.library.call("adamw_new", context.handle, handles, len(parameters), ctypes.byref(options),
                          ctypes.byref(out))
        self.handle = out.value

    def __del__(self):
        if getattr(self, "handle", None):
            self.library.c.trafo_adamw_free(self.handle)

    def step(self, learning_rate):
        norm = c_double()
        self.library.call("adamw_step", self.handle, learning_rate, ctypes.byref(norm))
        return norm.value
