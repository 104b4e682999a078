//go:build !linux

package network

import "net/netip"

func hostAddresses() ([]netip.Addr, error) { return listAddresses() }
