// Whole panels of int4 codes times quantized rows, for the instruction set `Isa` of the namespace
// that includes this after int8_multiply-inl.h. The products of a group are summed in integers, and
// the groups of a row one after another in float32.

// `kTileRows` of the block from `row` on, in kLanes rows of a panel from `lane` on.
template <int kTileRows>
void multiply_int4_tile(const Int4Block& b, int64_t row, int64_t panel, int64_t lane) {
  const Int4Panels& matrix = *b.matrix;
  const int64_t groups = matrix.groups();
  Isa::Floats totals[kTileRows];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) totals[r] = Isa::splat(0);
  const uint8_t* w = matrix.panel(panel) + lane * kGroupColumns;
  const uint16_t* scales = matrix.scales(panel) + lane;
  const uint8_t* x = b.x + row * b.x_stride;
  const int32_t* offsets = b.x_offsets + row * groups;
  for (int64_t g = 0; g < groups; ++g, w += Int4Panels::kGroupBytes, scales += kPanelRows,
               x += Int4Panels::kGroup, ++offsets) {
    Isa::Partial sums[kTileRows];
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) sums[r] = Isa::start(offsets[r * groups]);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const auto codes = Isa::load_codes(w + q * kPanelRows * kGroupColumns);
      const auto low = Isa::low(codes), high = Isa::high(codes);
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        const uint8_t* of_row = x + r * b.x_stride + q * kGroupColumns;
        sums[r] = Isa::add_codes(sums[r], low, of_row);
        sums[r] = Isa::add_codes(sums[r], high, of_row + Int4Panels::kGroup / 2);
      }
    }
    const Isa::Floats scale = Isa::load_halves(scales);
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r)
      totals[r] = Isa::multiply_add(Isa::to_float(Isa::finish(sums[r], offsets[r * groups])), scale,
                                    totals[r]);
  }
  const int64_t column = panel * kPanelRows + lane;
  const int64_t left = std::min(kLanes, matrix.rows() - column);
  if (left <= 0) return;
  const Isa::Floats bias = load_first(b.bias ? b.bias + column : b.x_scales, b.bias ? left : 0);
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
    const Isa::Floats values = Isa::multiply_add(totals[r], Isa::splat(b.x_scales[row + r]), bias);
    float* y = b.y + (row + r) * b.y_stride + column;
    if (left == kLanes)
      Isa::store(y, values);
    else
      store_first(y, values, left);
  }
}

// The rows of the block from `row` on, the most at a time first.
template <int kTileRows>
void multiply_int4_rows(const Int4Block& b, int64_t row, int64_t panel, int64_t lane) {
  for (; row + kTileRows <= b.rows; row += kTileRows)
    multiply_int4_tile<kTileRows>(b, row, panel, lane);
  if constexpr (kTileRows > 1) multiply_int4_rows<kTileRows / 2>(b, row, panel, lane);
}

void multiply_int4(const Int4Block& b) {
  for (int64_t panel = b.panel_begin; panel < b.panel_end; ++panel)
    for (int64_t lane = 0; lane < kPanelRows; lane += kLanes)
      multiply_int4_rows<Isa::kInt4Rows>(b, 0, panel, lane);
}
