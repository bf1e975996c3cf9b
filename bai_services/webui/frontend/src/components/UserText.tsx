import { visible } from '../i18n/userText';

/** A name or text of a user or program, which cannot reorder or imitate the text beside it. */
export const UserText = ({ text }: { text: string }) => <bdi>{visible(text)}</bdi>;
