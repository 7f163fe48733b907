# A network for workers alone: one subnet for each region with TPUs. Jobs that name no network run in it.

locals {
  # A number for each region with TPUs, for ever: its addresses must not change when another region is added.
  region_numbers = {
    us-central1        = 0
    us-central2        = 1
    us-east1           = 2
    us-east4           = 3
    us-east5           = 4
    us-south1          = 5
    us-west1           = 6
    us-west4           = 7
    europe-west4       = 8
    asia-east1         = 9
    asia-northeast1    = 10
    asia-southeast1    = 11
    southamerica-west1 = 12
  }

  # 8,190 addresses for each region: the largest slices have some 3,000 VMs.
  ranges = { for r in var.regions : r => cidrsubnet("10.64.0.0/10", 9, local.region_numbers[r]) }
  # The last 64 addresses: four for each instance that may run.
  services_range = cidrsubnet("10.64.0.0/10", 16, 65535)
  routed         = var.nat ? var.regions : []
}

resource "google_compute_network" "workers" {
  project                 = var.project
  name                    = "rekindle"
  description             = "TPU workers of Rekindle, and nothing else."
  auto_create_subnetworks = false
  # Multislice moves gradients between hosts; jumbo frames are what Google advises for it.
  mtu = 8896
}

resource "google_compute_subnetwork" "workers" {
  # checkov:skip=CKV_GCP_26:Flow logs of hosts that exchange gradients would cost more than the rest of Rekindle; the firewall lets in nothing from outside but SSH through IAP.
  # checkov:skip=CKV_GCP_76:The subnets have IPv4 only.
  for_each = var.regions

  project = var.project
  # The same name in each region, so that one job spec fits all zones.
  name                     = "rekindle"
  region                   = each.value
  network                  = google_compute_network.workers.id
  ip_cidr_range            = local.ranges[each.value]
  private_ip_google_access = true
}

resource "google_compute_firewall" "slices" {
  project     = var.project
  name        = "rekindle-slices"
  description = "Workers reach each other's unprivileged ports: coordination, gradients, multislice."
  network     = google_compute_network.workers.name
  direction   = "INGRESS"
  # The network holds workers only, so their ranges are the slices.
  source_ranges = values(local.ranges)

  # Programs choose their ports, and the TPU runtime has its own. None is below 1024, where SSH and the machine's services listen.
  allow {
    protocol = "tcp"
    ports    = ["1024-65535"]
  }
  allow {
    protocol = "udp"
    ports    = ["1024-65535"]
  }
  allow {
    protocol = "icmp"
  }
}

# The service `reconcile` stands with one foot in this network, to ring workers whose orders have changed.
resource "google_compute_subnetwork" "services" {
  # checkov:skip=CKV_GCP_26:One datagram each now and then, sent by our own service.
  # checkov:skip=CKV_GCP_76:The subnet has IPv4 only.
  project                  = var.project
  name                     = "rekindle-services"
  region                   = var.services_region
  network                  = google_compute_network.workers.id
  ip_cidr_range            = local.services_range
  private_ip_google_access = true
}

resource "google_compute_firewall" "bells" {
  project       = var.project
  name          = "rekindle-bells"
  description   = "The service reconcile rings workers."
  network       = google_compute_network.workers.name
  direction     = "INGRESS"
  source_ranges = [local.services_range]

  allow {
    protocol = "udp"
    ports    = [tostring(var.bell_port)]
  }
}

resource "google_compute_firewall" "ssh" {
  project     = var.project
  name        = "rekindle-ssh-iap"
  description = "SSH through Identity-Aware Proxy, from nowhere else."
  network     = google_compute_network.workers.name
  direction   = "INGRESS"
  # Identity-Aware Proxy's own range.
  source_ranges = ["35.235.240.0/20"]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

resource "google_compute_router" "nat" {
  for_each = local.routed

  project = var.project
  name    = "rekindle"
  region  = each.value
  network = google_compute_network.workers.id
}

resource "google_compute_router_nat" "nat" {
  for_each = local.routed

  project                            = var.project
  name                               = "rekindle"
  region                             = each.value
  router                             = google_compute_router.nat[each.value].name
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "LIST_OF_SUBNETWORKS"
  # Hundreds of workers begin at one moment, each with a few connections.
  enable_dynamic_port_allocation = true
  min_ports_per_vm               = 32
  max_ports_per_vm               = 4096

  subnetwork {
    name                    = google_compute_subnetwork.workers[each.value].id
    source_ip_ranges_to_nat = ["ALL_IP_RANGES"]
  }

  log_config {
    enable = true
    filter = "ERRORS_ONLY"
  }
}
