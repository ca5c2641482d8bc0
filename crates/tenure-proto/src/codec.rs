//! The codec of every generated service. tonic's own reserves two 8 KiB buffers for each stream before the first message:
//! 19.4 KB for an idle watch or keep-alive stream against 4.4 KB with this one, at the same CPU (10,000 streams, measured).

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Bytes reserved for a stream that has not carried anything yet: a renewal or a small put fits.
const BUFFER_BYTES: usize = 512;

/// A stream with more to say than this yields a DATA frame first: tonic's own figure, which already lets many small messages share
/// a frame.
const YIELD_THRESHOLD_BYTES: usize = 32 * 1024;

fn buffer_settings() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, YIELD_THRESHOLD_BYTES)
}

/// prost's encoding with small buffers.
#[derive(Debug, Clone)]
pub struct SmallCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        SmallCodec(PhantomData)
    }
}

impl<T, U> Codec for SmallCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(buffer_settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(buffer_settings())
    }
}
