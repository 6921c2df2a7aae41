// Decodes JPEG headers, and windows of pixels as RGB at full or reduced size (libjpeg-turbo).
#pragma once
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace godwit::data {

// Thrown if the bytes are not a decodable image.
class DecodeError : public std::runtime_error {
  using runtime_error::runtime_error;
};

// Fields of a JPEG header.
struct JpegHeader {
  int64_t width = 0, height = 0;  // in pixels
  int channels = 0;               // number of stored channels: 1 gray, 3 color, 4 CMYK
  int64_t data_from = 0;          // file offset of the image data
  // Memory for decoding any window of the image. Progressive and multi-scan files keep all coefficients, with 2 bytes
  // each. 0 for other files, which are decoded row by row.
  int64_t coefficient_bytes = 0;
};

// Parses the header, which must be within `bytes`, and checks that the coding and the tables are supported. Throws
// DecodeError.
JpegHeader read_jpeg_header(std::span<const uint8_t> bytes);

// Whether the end marker is present, which means that the file is not truncated. `data`: image data up to the end of
// the file.
bool has_jpeg_end(std::span<const uint8_t> data);

// A rectangle of whole pixels.
struct Rect {
  int64_t left = 0, top = 0, width = 0, height = 0;  // upper left corner and size
};

// A part of an image at 1/scale of its size. Positions are in reduced pixels, measured from the image's upper left
// corner.
struct Pixels {
  int scale = 1;             // 1, 2, 4 or 8
  Rect part;                 // the pixels in rgb
  std::vector<uint8_t> rgb;  // [height, width, 3]
  bool damaged = false;      // whether the data is corrupt; rgb then contains the decodable part
};

// Decodes the pixels that cover `window` (in full-image pixels) at 1, 1/2, 1/4 or 1/8 of the size. A full decode gives
// the same values, unless the two chroma components have different sampling. Gray and CMYK become RGB. Throws
// DecodeError for data that cannot be decoded, and if coefficient_bytes exceeds `most_bytes`. Throws Error if the
// window is not inside the image. Releases all memory except the result.
Pixels decode_jpeg(std::span<const uint8_t> bytes, const Rect& window, int scale = 1, int64_t most_bytes = INT64_MAX);

// Message for a skipped image: "takes 366 MiB to decode (progressive), more than data.decode_mib=256".
std::string too_much_memory(int64_t coefficient_bytes, int64_t most_bytes);

}  // namespace godwit::data
