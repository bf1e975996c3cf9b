import { EntityPage } from '../../components/entities/EntityPage';
import { CUSTOM_IMAGES } from './customImages';

/** My environments: images that users make from sessions. */
export function CustomImagesPage() {
  return (
    <EntityPage path="/custom-images" title="pages.custom-images" entities={[CUSTOM_IMAGES]} />
  );
}
