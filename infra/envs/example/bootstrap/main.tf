# Before the image can be published and the rest applied.

module "bootstrap" {
  source = "../../../modules/bootstrap"

  project          = var.project
  region           = var.region
  bucket_locations = var.bucket_locations
  zones            = [for c in var.capacity : c.zone]
}
