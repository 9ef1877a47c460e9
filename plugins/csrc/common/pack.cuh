// N elements that one thread reads or writes at once; the address must be a multiple of their size.
#pragma once

namespace dsv4 {

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
    T at[N];
};

template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
    return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <int N, class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& pack) {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// Elements of T in the 16 bytes that one thread moves best.
template <class T>
constexpr int kPack = 16 / sizeof(T);

}  // namespace dsv4
