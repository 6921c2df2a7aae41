// JPEG files: their header, and the pixels of a window as RGB, decoded at full or reduced size (libjpeg-turbo).
#pragma once
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace godwit::data {

// The bytes are no image that can be decoded.
class DecodeError : public std::runtime_error {
  using runtime_error::runtime_error;
};

struct JpegHeader {
  int64_t width = 0, height = 0;
  int channels = 0;       // as stored: 1 grey, 3 colour, 4 CMYK
  int64_t data_from = 0;  // position in the file at which the image data begin
  // Memory that decoding takes for the whole image, however small the window: a progressive file, or one of several
  // scans, is decoded in passes over all coefficients, 2 bytes each. 0 for the others, which are decoded row by row.
  int64_t coefficient_bytes = 0;
};

// Reads the header, which must lie within `bytes`, and checks what decoding needs of it (coding, tables). Throws
// DecodeError.
JpegHeader read_jpeg_header(std::span<const uint8_t> bytes);

// The end marker is there: not truncated. `data`: image data from anywhere to the end of the file.
bool has_jpeg_end(std::span<const uint8_t> data);

struct Rect {
  int64_t left = 0, top = 0, width = 0, height = 0;
};

// A part of an image reduced to 1/scale of its size; positions count reduced pixels from the image's corner.
struct Pixels {
  int scale = 1;
  Rect part;
  std::vector<uint8_t> rgb;  // [height, width, 3]
  bool damaged = false;      // the data is corrupt, what could be decoded is here
};

// The pixels that cover `window` (in pixels of the full image, inside it) at 1, 1/2, 1/4 or 1/8 of the size; the same
// values as in an image decoded whole. Grey and CMYK become RGB. Throws DecodeError, also when coefficient_bytes is
// above `most_bytes`, and Error when the window is not inside the image. All memory but the result's is given back.
Pixels decode_jpeg(std::span<const uint8_t> bytes, const Rect& window, int scale = 1, int64_t most_bytes = INT64_MAX);

// Why an image is not decoded: "takes 366 MiB to decode (progressive), more than data.decode_mib=256".
std::string too_much_memory(int64_t coefficient_bytes, int64_t most_bytes);

}  // namespace godwit::data
