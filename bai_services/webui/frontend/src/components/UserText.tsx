import { visible } from '../i18n/userText';

/** Text from a user or program. Invisible and bidirectional characters in it cannot affect the
 * adjacent text or imitate it.
 */
export const UserText = ({ text }: { text: string }) => <bdi>{visible(text)}</bdi>;
