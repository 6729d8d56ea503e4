// Whole panels times quantized rows, for the instruction set `Isa` of the namespace that includes
// this, once for each. A tile of kRows rows by kPanels panels is held in registers while the
// columns run by.

inline constexpr int64_t kLanes = sizeof(Isa::Sums) / sizeof(int32_t);
inline constexpr int kVectors = static_cast<int>(kPanelRows / kLanes);  // of a panel

// Writes the first `count` of the kLanes elements.
HWY_INLINE void store_first(float* to, Isa::Floats values, int64_t count) {
  alignas(64) float lanes[kLanes];
  Isa::store(lanes, values);
  std::memcpy(to, lanes, static_cast<size_t>(count) * sizeof(float));
}

HWY_INLINE Isa::Floats load_first(const float* from, int64_t count) {
  alignas(64) float lanes[kLanes] = {};
  std::memcpy(lanes, from, static_cast<size_t>(count) * sizeof(float));
  return Isa::load_floats(lanes);
}

// `row` of the block, in panels from `panel` on.
template <int kTileRows, int kTilePanels>
void multiply_tile(const Int8Block& b, int64_t row, int64_t panel) {
  constexpr int kWide = kTilePanels * kVectors;
  const Int8Matrix& matrix = *b.matrix;
  Isa::Sums sums[kTileRows][kWide];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kWide; ++v) sums[r][v] = Isa::zero();
  }
  const uint8_t* x = b.x + row * b.x_stride;
  const int64_t x_stride = b.x_stride, panel_bytes = matrix.panel_bytes();
  const int8_t* w = matrix.panel(panel);
  for (int64_t g = matrix.groups(); g > 0; --g, x += kGroupColumns, w += kGroupBytes) {
    Isa::Factors factors[kTileRows];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) factors[r] = Isa::broadcast(x + r * x_stride);
#pragma GCC unroll 16
    for (int v = 0; v < kWide; ++v) {
      const auto codes = Isa::load(w + v / kVectors * panel_bytes + v % kVectors * kLanes * 4);
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r)
        sums[r][v] = Isa::add_products(sums[r][v], factors[r], codes);
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kWide; ++v) {
    const int64_t column = panel * kPanelRows + v * kLanes;
    const int64_t left = std::min(kLanes, matrix.rows() - column);
    if (left <= 0) break;
    const Isa::Floats scales = Isa::load_floats(matrix.padded_scales() + column);
    const Isa::Floats bias =
        load_first(b.bias ? b.bias + column : matrix.padded_scales(), b.bias ? left : 0);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      Isa::Sums exact = sums[r][v];
      if constexpr (Isa::kCorrects)
        exact = Isa::subtract(exact, Isa::load(matrix.corrections() + column));
      const Isa::Floats values =
          Isa::multiply_add(Isa::to_float(exact), Isa::times(b.x_scales[row + r], scales), bias);
      float* y = b.y + (row + r) * b.y_stride + column;
      if (left == kLanes)
        Isa::store(y, values);
      else
        store_first(y, values, left);
    }
  }
}

// `rows` of the block from `row` on: 1 to kTileRows, in one tile.
template <int kTileRows, int kTilePanels>
void multiply_rows(const Int8Block& b, int64_t row, int64_t rows, int64_t panel) {
  if constexpr (kTileRows > 1) {
    if (rows < kTileRows) return multiply_rows<kTileRows - 1, kTilePanels>(b, row, rows, panel);
  }
  multiply_tile<kTileRows, kTilePanels>(b, row, panel);
}

template <int kTilePanels>
void multiply_panels(const Int8Block& b, const EvenSplit& tiles, int64_t panel) {
  for (int64_t t = 0; t < tiles.parts(); ++t)
    multiply_rows<Isa::kRows, kTilePanels>(b, tiles.begin(t), tiles.size(t), panel);
}

void multiply(const Int8Block& b) {
  const EvenSplit tiles(b.rows, Isa::kRows);
  int64_t panel = b.panel_begin;
  for (; panel + Isa::kPanels <= b.panel_end; panel += Isa::kPanels)
    multiply_panels<Isa::kPanels>(b, tiles, panel);
  for (; panel < b.panel_end; ++panel) multiply_panels<1>(b, tiles, panel);
}
