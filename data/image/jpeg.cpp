#include "data/image/jpeg.h"

#include <jpeglib.h>  // requires <cstdio>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr int kMostScans = 500;     // progressive files have about ten; each costs a pass over the whole image
constexpr int64_t kUpsampling = 2;  // color upsampling at the window's edge reads this many pixels outside the window

// One decompression. libjpeg reports errors by longjmp, so code inside guarded() must not own objects with destructors.
class Decompressor {
 public:
  explicit Decompressor(std::span<const uint8_t> bytes) : bytes_(bytes) {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_.client_data = this;
    errors_.error_exit = [](j_common_ptr jpeg) {
      auto* self = static_cast<Decompressor*>(jpeg->client_data);
      jpeg->err->format_message(jpeg, self->message_);
      std::longjmp(self->escape_, 1);
    };
    errors_.emit_message = [](j_common_ptr jpeg, int level) { jpeg->err->num_warnings += level < 0; };
    progress_.progress_monitor = [](j_common_ptr jpeg) {
      auto* self = static_cast<Decompressor*>(jpeg->client_data);
      if (self->jpeg_.input_scan_number <= kMostScans) return;
      std::snprintf(self->message_, sizeof self->message_, "more than %d scans", kMostScans);
      std::longjmp(self->escape_, 1);
    };
  }
  ~Decompressor() { jpeg_destroy_decompress(&jpeg_); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  JpegHeader header() {
    guarded(&Decompressor::read_header);
    // libjpeg continues a truncated header with end markers from its own memory.
    const jpeg_source_mgr& source = *jpeg_.src;
    if (source.next_input_byte + source.bytes_in_buffer != bytes_.data() + bytes_.size())
      throw DecodeError("is not a readable JPEG (the header is truncated)");
    return {jpeg_.image_width, jpeg_.image_height, jpeg_.num_components, jpeg_.src->next_input_byte - bytes_.data(),
            coefficient_bytes()};
  }

  void start(int scale) {
    scale_ = scale;
    guarded(&Decompressor::start_decompress);
  }

  // Size of libjpeg's coefficient arrays, which hold complete blocks and minimum coded units.
  int64_t coefficient_bytes() {
    if (!jpeg_has_multiple_scans(&jpeg_)) return 0;
    const auto rounded = [](int64_t blocks, int64_t factor) { return (blocks + factor - 1) / factor * factor; };
    int64_t blocks = 0;
    for (int c = 0; c < jpeg_.num_components; ++c) {
      const jpeg_component_info& component = jpeg_.comp_info[c];
      blocks += rounded(component.width_in_blocks, component.h_samp_factor) *
                rounded(component.height_in_blocks, component.v_samp_factor);
    }
    return blocks * static_cast<int64_t>(sizeof(JBLOCK));
  }

  Pixels pixels(const Rect& window) {
    const int64_t s = scale_, columns = jpeg_.output_width, rows = jpeg_.output_height;
    result_.scale = scale_;
    Rect& part = result_.part;
    part.left = window.left / s;
    part.top = window.top / s;
    part.width = std::min(columns, (window.left + window.width + s - 1) / s) - part.left;
    part.height = std::min(rows, (window.top + window.height + s - 1) / s) - part.top;
    result_.rgb.resize(static_cast<size_t>(part.width * part.height * 3));
    row_.resize(static_cast<size_t>(columns * jpeg_.output_components));
    guarded(&Decompressor::read_rows);
    result_.damaged = errors_.num_warnings > 0;
    return std::move(result_);
  }

 private:
  void guarded(void (Decompressor::*work)()) {
    if (setjmp(escape_)) throw DecodeError(std::string("is not a readable JPEG (") + message_ + ")");
    (this->*work)();
  }

  void read_header() {
    jpeg_create_decompress(&jpeg_);
    jpeg_.progress = &progress_;
    jpeg_mem_src(&jpeg_, bytes_.data(), static_cast<unsigned long>(bytes_.size()));
    jpeg_read_header(&jpeg_, TRUE);
  }

  void start_decompress() {
    const bool cmyk = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
    jpeg_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_.scale_num = 1;
    jpeg_.scale_denom = static_cast<unsigned>(scale_);
    jpeg_start_decompress(&jpeg_);
  }

  // jpeg_crop_scanline of libjpeg-turbo 2.1.5 computes a component's width without its DCT scaling, and upsampling
  // reads this width. The only common images that are both scaled and upsampled are 4:1:0 at half the size.
  bool can_crop() const {
    for (int c = 0; c < jpeg_.num_components; ++c) {
      const jpeg_component_info& component = jpeg_.comp_info[c];
      const bool scaled = component.DCT_scaled_size != jpeg_.min_DCT_scaled_size;
      const bool upsampled =
          component.h_samp_factor * component.DCT_scaled_size < jpeg_.max_h_samp_factor * jpeg_.min_DCT_scaled_size ||
          component.v_samp_factor * component.DCT_scaled_size < jpeg_.max_v_samp_factor * jpeg_.min_DCT_scaled_size;
      if (scaled && upsampled) return false;
    }
    return true;
  }

  // Skips the inverse transform left and right of the window, only entropy-decodes the rows above, and does not read
  // the rows below.
  void read_rows() {
    const Rect& part = result_.part;
    const int64_t first = std::max<int64_t>(0, part.left - kUpsampling), columns = jpeg_.output_width;
    const int64_t last = std::min(columns, part.left + part.width + kUpsampling);
    JDIMENSION offset = static_cast<JDIMENSION>(first), width = static_cast<JDIMENSION>(last - first);
    if (width < columns && can_crop()) jpeg_crop_scanline(&jpeg_, &offset, &width);
    else offset = 0;
    if (part.top > 0) jpeg_skip_scanlines(&jpeg_, static_cast<JDIMENSION>(part.top));
    uint8_t* to = result_.rgb.data();
    JSAMPROW row = row_.data();
    for (int64_t y = 0; y < part.height; ++y, to += part.width * 3) {
      jpeg_read_scanlines(&jpeg_, &row, 1);
      const uint8_t* from = row + (part.left - offset) * jpeg_.output_components;
      if (jpeg_.output_components == 3) std::memcpy(to, from, static_cast<size_t>(part.width * 3));
      else cmyk_to_rgb(from, part.width, to);
    }
  }

  // Adobe files store inverted ink values, 255 for no ink.
  void cmyk_to_rgb(const uint8_t* from, int64_t pixels, uint8_t* to) const {
    const int flip = jpeg_.saw_Adobe_marker ? 0 : 255;
    for (int64_t i = 0; i < pixels; ++i, from += 4, to += 3) {
      const int light = from[3] ^ flip;
      for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(((from[c] ^ flip) * light + 127) / 255);
    }
  }

  std::span<const uint8_t> bytes_;
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf escape_;
  char message_[JMSG_LENGTH_MAX] = "";
  int scale_ = 1;
  Pixels result_;
  std::vector<uint8_t> row_;
};

const char* format_of(std::span<const uint8_t> bytes) {
  const auto begins = [&](const char* magic, size_t at = 0) {
    const size_t length = std::strlen(magic);
    return bytes.size() >= at + length && std::memcmp(bytes.data() + at, magic, length) == 0;
  };
  if (begins("\x89PNG")) return "a PNG image (only JPEG is supported)";
  if (begins("GIF8")) return "a GIF image (only JPEG is supported)";
  if (begins("WEBP", 8)) return "a WebP image (only JPEG is supported)";
  if (begins("II*") || begins("MM")) return "a TIFF image (only JPEG is supported)";
  return "not an image";
}

}  // namespace

JpegHeader read_jpeg_header(std::span<const uint8_t> bytes) {
  if (bytes.empty()) throw DecodeError("is empty");
  if (bytes.size() < 3 || bytes[0] != 0xff || bytes[1] != 0xd8 || bytes[2] != 0xff)
    throw DecodeError(std::string("is ") + format_of(bytes));
  Decompressor jpeg(bytes);
  const JpegHeader header = jpeg.header();
  if (header.channels != 1 && header.channels != 3 && header.channels != 4)
    throw DecodeError("is a JPEG of " + std::to_string(header.channels) + " color components (supported: 1, 3, 4)");
  if (header.coefficient_bytes == 0) jpeg.start(8);  // progressive files would be read to the end
  return header;
}

bool has_jpeg_end(std::span<const uint8_t> data) {
  for (size_t i = data.size(); i >= 2; --i)
    if (data[i - 2] == 0xff && data[i - 1] == 0xd9) return true;
  return false;
}

std::string too_much_memory(int64_t coefficient_bytes, int64_t most_bytes) {
  constexpr int64_t kMiB = 1 << 20;
  return detail::concat("takes ", (coefficient_bytes + kMiB - 1) / kMiB,
                        " MiB to decode (progressive or multi-scan), more than data.decode_mib=", most_bytes / kMiB,
                        "; raise data.decode_mib, or save the image as a baseline JPEG");
}

Pixels decode_jpeg(std::span<const uint8_t> bytes, const Rect& window, int scale, int64_t most_bytes) {
  check(scale == 1 || scale == 2 || scale == 4 || scale == 8, "jpeg: scale 1/", scale, "; expected 1, 1/2, 1/4 or 1/8");
  Decompressor jpeg(bytes);
  const JpegHeader header = jpeg.header();
  check(window.left >= 0 && window.top >= 0 && window.width > 0 && window.height > 0 &&
            window.left + window.width <= header.width && window.top + window.height <= header.height,
        "jpeg: window ", window.width, "x", window.height, " at ", window.left, ",", window.top,
        " is not inside an image of ", header.width, "x", header.height);
  if (header.coefficient_bytes > most_bytes) throw DecodeError(too_much_memory(header.coefficient_bytes, most_bytes));
  jpeg.start(scale);
  return jpeg.pixels(window);
}

}  // namespace godwit::data
