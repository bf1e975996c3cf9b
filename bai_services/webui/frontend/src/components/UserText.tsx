import { visible } from '../i18n/userText';

/** A name or text of a user or program; it cannot reorder or imitate adjacent text. */
export const UserText = ({ text }: { text: string }) => <bdi>{visible(text)}</bdi>;
